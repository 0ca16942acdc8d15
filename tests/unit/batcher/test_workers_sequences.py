"""`sequence_batching` takes effect with the workers that were started for it, not before: until then all goes on."""

from dataclasses import replace
from typing import Any

import pytest

from services.core.errors import OK, UNAVAILABLE
from services.core.model_spec import ModelSpec
from tests.support.batching import NAME, Bench, numbers_of
from tests.support.sequencing import CONTROLS, SIGNATURE, STATE, tensor
from tests.support.serving import comes, served_by
from turnout.v1 import link_pb2 as pb

SEQUENCES = {"control_input": CONTROLS, "state": STATE}
WRONG = {"control_input": CONTROLS, "state": [{"input_name": "nowhere", "output_name": "after"}]}
OTHERWISE = {"control_input": CONTROLS[:1], "state": STATE}


def spec_of(sequences: dict[str, Any] | None, **batching: Any) -> ModelSpec:
    return ModelSpec.model_validate({"batching": {"max_batch_size": 4, "sequence_batching": sequences, **batching}})


class Changed(Bench):
    """A worker that was started for a spec, which `spec` then changes."""

    def __init__(self, sequences: dict[str, Any] | None) -> None:
        super().__init__(signature=SIGNATURE, workers=0)
        self.spec = spec_of(sequences)
        self.facts = replace(self.facts, sequences=self.spec.batching.sequence_batching)
        self.serving = served_by(lambda _model, _version: self.spec, self)
        self.arrives()

    def arrives(self) -> None:
        """A worker comes that was started for the present spec."""
        self.puppets = [*self.puppets, comes(self.serving, self, self.spec.batching.sequence_batching)]

    def change(self, sequences: dict[str, Any] | None, **batching: Any) -> None:
        self.spec = spec_of(sequences, **batching)
        self.serving.changed()
        self.batcher = self.serving.batchers[NAME]

    def step(self, value: int, *, start: bool = False, worker: int = 0) -> int:
        """A step of a sequence; its outcome."""
        (number,) = self.send([value], sequence=pb.Sequence(number=1, start=start))
        for request in self.puppets[worker].batches():
            x = tensor(request, "x")
            assert numbers_of(x.data) == [value]
            reply = pb.Reply(id=request.id, executed=pb.EXECUTED_YES, stages_ns=[1, 2, 3], final=True)
            reply.outputs.add(name="y", datatype="INT32", shape=x.shape, data=x.data)
            self.puppets[worker].reply(reply)
        return self.codes()[number]

    @property
    def keeps_state(self) -> bool:
        (served,) = self.serving.message.models
        return served.keeps_state


@pytest.mark.parametrize("after", [WRONG, OTHERWISE, None, OTHERWISE | {"oldest": {"max_candidate_sequences": 2}}])
def test_sequences_go_on_while_no_worker_was_started_for_what_changed(after: dict[str, Any] | None) -> None:
    bench = Changed(SEQUENCES)
    assert bench.step(1, start=True) == OK
    bench.change(after, **({} if after else {"priority_levels": 2, "default_priority_level": 1}))

    assert bench.step(2) == OK
    assert (bench.keeps_state, bench.batcher.policy.levels) == (True, ())


def test_a_model_without_state_goes_on_as_it_is_until_a_worker_with_state_comes() -> None:
    bench = Changed(None)
    before = bench.batcher.policy
    bench.change(SEQUENCES)
    assert (bench.batcher.policy.sequences, bench.keeps_state) == (None, False)
    assert bench.batcher.policy == before

    bench.arrives()
    assert bench.keeps_state
    assert [puppet.worker.accepting for puppet in bench.puppets] == [False, True]
    assert bench.step(1, start=True, worker=1) == OK
    assert bench.puppets[0].batches() == []


@pytest.mark.parametrize("after", [OTHERWISE, None])
def test_what_waits_for_workers_of_before_is_told_and_what_runs_is_answered(after: dict[str, Any] | None) -> None:
    bench = Changed(SEQUENCES)
    running, behind = (bench.send([n], sequence=pb.Sequence(number=1, start=n == 1))[0] for n in (1, 2))
    bench.change(after)
    assert bench.codes() == {}
    bench.arrives()
    assert bench.codes() == {behind: UNAVAILABLE}
    bench.puppet.echo()

    assert bench.codes()[running] == OK
    assert [puppet.worker.accepting for puppet in bench.puppets] == [False, True]
    assert bench.puppet.worker.is_done


@pytest.mark.parametrize("strategy", [{}, {"oldest": {"max_candidate_sequences": 2}}])
def test_what_is_the_batchers_alone_takes_effect_at_once(strategy: dict[str, Any]) -> None:
    bench = Changed(SEQUENCES)
    assert bench.step(1, start=True) == OK
    bench.change(SEQUENCES | strategy | {"max_sequence_idle_microseconds": 70_000})
    policy = bench.batcher.policy.sequences

    assert policy is not None
    assert (policy.idle_ns, policy.direct) == (70_000_000, not strategy)
    if not strategy:
        assert bench.step(2) == OK


@pytest.mark.parametrize("begins", [True, False])
def test_without_a_worker_a_model_may_begin_and_cease_to_have_sequences(begins: bool) -> None:  # noqa: FBT001
    specs = [spec_of(None), spec_of(SEQUENCES)]
    before, after = specs if begins else specs[::-1]
    bench, found = Bench(signature=SIGNATURE, workers=0), {"spec": before}
    bench.facts = replace(bench.facts, sequences=before.batching.sequence_batching)
    serving = served_by(lambda _model, _version: found["spec"], bench)
    bench.hire().die()
    first, found["spec"] = bench.batcher, after
    serving.changed()
    assert bench.batcher is serving.batcher(bench.facts) is first
    comes(serving, bench, after.batching.sequence_batching)

    assert (bench.batcher.policy.sequences is not None) == begins
    assert bench.batcher is not first
    assert NAME in serving.batchers
