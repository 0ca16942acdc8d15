"""What a running instance says of itself when the spec changes."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.core.batching_spec import SequenceBatching, states_and_controls
from services.core.model_spec import ModelSpec
from services.runtime.admission import Admission
from services.runtime.footprints import Footprints
from services.runtime.job import Job
from services.runtime.metrics import RuntimeMetrics
from services.runtime.supervisor import Bounds, Supervisor

STATE = [{"input_name": "before", "output_name": "after"}]


def spec_of(sequences: dict[str, Any] | None) -> ModelSpec:
    return ModelSpec.model_validate({"batching": {"sequence_batching": sequences}})


class Running:
    """An instance that was started for these; `changes` counts what it said."""

    def __init__(self, sequences: dict[str, Any] | None) -> None:
        spec = spec_of(sequences)
        states, controls = states_and_controls(spec.batching.sequence_batching)
        job = Job(
            id="w1", model="m", version="1", digest="sha256:1", framework="onnx", file=Path("f"), socket=Path("s"),
            states=states, controls=controls,
        )  # fmt: skip
        self.changes = 0
        metrics = RuntimeMetrics(CollectorRegistry())
        admission = Admission(Footprints(Path("f")), lambda: 0, at_once=1, budget=None)
        self.supervisor = Supervisor(
            job, Bounds.of(spec), self._changed, metrics, admission, load_timeout_s=1, drain_s=1
        )

    def _changed(self) -> None:
        self.changes += 1

    def told(self, sequences: dict[str, Any] | None) -> SequenceBatching | None:
        """What it says when the spec says so."""
        self.supervisor.adjust(Bounds.of(spec_of(sequences)))
        said = self.supervisor.instance.sequence_batching
        return SequenceBatching.parse(said) if said else None


def test_an_instance_says_new_times_of_its_sequences() -> None:
    running = Running({"state": STATE})
    told = running.told({"state": STATE, "max_sequence_idle_microseconds": 7})

    assert told is not None
    assert (told.max_sequence_idle_microseconds, running.changes) == (7, 1)


def test_sequences_without_state_may_begin_and_cease_without_another_process() -> None:
    running = Running(None)

    assert running.told({}) == SequenceBatching()
    assert running.told(None) is None
    assert running.changes == 2


@pytest.mark.parametrize("after", [None, {"control_input": [{"name": "start", "kind": "START"}]}])
def test_an_instance_never_says_states_that_it_was_not_started_for(after: dict[str, Any] | None) -> None:
    running = Running({"state": STATE})

    assert running.told(after) == SequenceBatching.model_validate({"state": STATE})
    assert running.changes == 0
