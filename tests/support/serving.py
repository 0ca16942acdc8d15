"""What serves the model version of a bench, by a spec that the test says and workers that come when told."""

from dataclasses import replace

from services.batcher.serving import Endpoints, Serving, SpecOf
from services.core.batching_spec import SequenceBatching
from tests.support.batching import Bench, Puppet


class Registration:
    """Keeps nothing."""

    def put(self, key: str, value: bytes) -> None: ...
    def remove(self, key: str) -> None: ...


def served_by(spec_of: SpecOf, bench: Bench) -> Serving:
    """What serves a bench's model version; its batcher is the bench's."""
    serving = Serving(
        spec_of,
        Endpoints(Registration(), "pod"),  # type: ignore[arg-type]
        bench.device,
        clock=bench.time.clock,
        call_later=bench.time.call_later,
    )
    bench.batcher = serving.batcher(bench.facts)
    return serving


def comes(serving: Serving, bench: Bench, sequences: SequenceBatching | None) -> Puppet:
    """A worker that was started for these."""
    bench.facts = replace(bench.facts, sequences=sequences)
    puppet = Puppet(bench, len(bench.batcher.workers), 1)
    serving.attach(puppet.worker)
    serving.changed()
    bench.batcher = serving.batcher(bench.facts)
    return puppet
