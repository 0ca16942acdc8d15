"""Instances that the runtime lets go, or says something new of, while others serve."""

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from services.batcher.batcher import Batcher
from services.batcher.instances import Instances
from services.batcher.worker import Worker, WorkerFacts
from services.chassis.arena.arenas import Arenas
from services.chassis.link import Link
from services.chassis.wire import signature_to_proto
from tests.support.batching import ECHO, NAME, Bench, FakeLink
from turnout.v1 import link_pb2
from turnout.v1 import runtime_pb2 as pb


class Versions:
    """One batcher for all."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher

    def batcher(self, facts: WorkerFacts) -> Batcher:
        assert facts.name == NAME
        return self._batcher

    def attach(self, worker: Worker) -> None:
        self._batcher.attach(worker)

    def changed(self) -> None: ...


class Pod:
    """Instances that are dialled, but never answer by themselves."""

    def __init__(self) -> None:
        self.bench = Bench(workers=0)
        self.closed: list[str] = []
        self.instances = Instances(
            Versions(self.bench.batcher), link_pb2.Hello(), Arenas(0), self._spawn, self.bench.time.clock
        )

    def say(self, *told: tuple[str, str, int]) -> None:
        """The READY instances: id, digest, slots."""
        signature = signature_to_proto(ECHO)
        ready = [
            pb.Instance(
                id=number, model=NAME.model, version=NAME.version, digest=digest, slots=slots, state=pb.READY,
                signature=signature, data_socket=f"/nowhere/{number}",
            )
            for number, digest, slots in told
        ]  # fmt: skip
        self.instances.apply(pb.RuntimeState(instances=ready))

    def link(self, number: str) -> Link:
        link = cast("Link", FakeLink())
        self.instances.by_id[number].opened(link)
        return link

    def accepting(self) -> list[str]:
        return [worker.facts.id for worker in self.bench.batcher.workers if worker.accepting]

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> object:
        self.closed.append(name)
        return asyncio.ensure_future(work)


@pytest.fixture
async def pod() -> Pod:
    pod = Pod()
    pod.say(("old", "sha256:1", 2))
    pod.link("old")
    pod.say(("old", "sha256:1", 2), ("new", "sha256:2", 2))
    pod.link("new")
    assert pod.accepting() == ["new"]
    return pod


async def test_new_slots_of_a_replaced_artifact_do_not_bring_it_back(pod: Pod) -> None:
    pod.say(("old", "sha256:1", 4), ("new", "sha256:2", 4))

    assert pod.accepting() == ["new"]
    assert [worker.facts.slots for worker in pod.bench.batcher.workers] == [4, 4]
    await pod.instances.close()


async def test_an_instance_that_is_ready_again_takes_batches_again(pod: Pod) -> None:
    pod.bench.send([1])
    pod.say(("old", "sha256:1", 2))
    assert pod.accepting() == []
    pod.say(("old", "sha256:1", 2), ("new", "sha256:2", 2))

    assert pod.accepting() == ["new"]
    await pod.instances.close()


async def test_an_instance_that_was_let_go_is_not_dialled_again_when_its_link_is_lost(pod: Pod) -> None:
    pod.bench.send([1])
    lost = pod.instances.by_id["new"]
    pod.say(("old", "sha256:1", 2))
    assert pod.closed == []
    lost.closed(cast("Link", FakeLink()), "killed")

    assert pod.closed == ["close-new"]
    assert list(pod.instances.by_id) == ["old"]
    await pod.instances.close()


async def test_an_instance_that_said_it_leaves_gets_no_batch_while_the_runtime_still_names_it(pod: Pod) -> None:
    pod.bench.send([1])
    new = pod.instances.by_id["new"]
    new.received(cast("Link", FakeLink()), link_pb2.Frame(drain=link_pb2.Drain()))
    pod.bench.send([2])
    pod.say(("old", "sha256:1", 2), ("new", "sha256:2", 2))

    assert pod.accepting() == []
    assert [len(worker.in_flight) for worker in pod.bench.batcher.workers] == [0, 1]
    await pod.instances.close()


@pytest.mark.parametrize("is_let_go", [True, False])
async def test_when_the_newest_dies_the_one_before_takes_batches_unless_it_was_let_go(
    pod: Pod,
    is_let_go: bool,  # noqa: FBT001
) -> None:
    if is_let_go:
        pod.instances.by_id["old"].retire()
    pod.instances.by_id["new"].closed(cast("Link", FakeLink()), "killed")

    assert pod.accepting() == ([] if is_let_go else ["old"])
    await pod.instances.close()


async def test_one_that_was_let_go_and_is_ready_again_may_take_batches_when_the_newest_dies(pod: Pod) -> None:
    old = pod.instances.by_id["old"]
    old.retire()
    old.keep(old.facts)
    assert pod.accepting() == ["new"]
    pod.instances.by_id["new"].closed(cast("Link", FakeLink()), "killed")

    assert pod.accepting() == ["old"]
    await pod.instances.close()


async def test_an_instance_that_cannot_be_understood_keeps_no_other_from_being_dialled() -> None:
    pod = Pod()
    odd = [pb.Instance(id="a", pad_to=b"{nope"), pb.Instance(id="b", sequence_batching=b"[]"), pb.Instance(id="c")]
    for instance in odd:
        instance.MergeFrom(pb.Instance(model=NAME.model, version=NAME.version, state=pb.READY, data_socket="/nowhere"))
    pod.instances.apply(pb.RuntimeState(instances=odd))
    dialled = list(pod.instances.by_id)
    await pod.instances.close()

    assert dialled == ["c"]
