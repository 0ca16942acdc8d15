"""Processes are killed at random points while numbered requests flow: each caller gets its own answer, or an error.

No answer goes to another caller, no row is begun more than twice, nobody waits past the deadline, nothing is lost
without an error, and afterwards everything answers again by itself.
"""

import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from tests.support import numbered
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, errors, introduce, serve, workers
from tests.support.traffic import Ask, Traffic, mixed

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

MOST_ROWS = 8
NUMBERS = 500_000  # that a siege may use; those of seed 0 are left to warm-ups and to the healing
SPEC = {"batching": {"max_batch_size": MOST_ROWS}}
MODELS = ("numbers", "moody")
KINDS = ("worker", "runtime", "batcher", "router")
NAMES = ("runtime-0", "batcher-0", "runtime-1", "batcher-1", "router-0", "router-1")
CLEAR = frozenset({"UNAVAILABLE", "INTERNAL", "DEADLINE_EXCEEDED"})
TIGHT_S, LEAVES_S = 0.02, 0.005


class Siege(NamedTuple):
    """How much, and how often something dies."""

    seed: int
    requests: int
    rate: float  # a second
    kills: int


class World(NamedTuple):
    """A mesh of two pods and two routers that come back where they were."""

    mesh: Mesh
    routers: list[str]
    diary: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder, diary = tmp_path_factory.mktemp("chaos"), tmp_path_factory.mktemp("diary")
    async with Mesh(folder, only=(), replicas=2, settings=QUICK) as mesh:
        routers = [f"127.0.0.1:{port}" for port in free_ports(2)]
        for number, address in enumerate(routers):
            mesh.add(f"router-{number}", "router", GRPC_ADDRESS=address)
        numbered.write_moody(mesh.repository, "moody", 1, sleep_s=0.004, diary=str(diary))
        await mesh.start(*NAMES)
        await serve(mesh, "numbers", 1, spec=SPEC, replicas=2, router="router-0")
        await introduce(mesh, "moody", 1, spec={**SPEC, "trusted": True}, replicas=2, router="router-0")
        yield World(mesh, routers, diary)


async def test_a_thousand_requests_through_a_kill_of_everything(world: World) -> None:
    await besiege(world, Siege(seed=1, requests=1000, rate=250, kills=4))


@pytest.mark.slow
async def test_ten_thousand_requests_through_kills_without_end(world: World) -> None:
    await besiege(world, Siege(seed=2, requests=10_000, rate=200, kills=24))


async def besiege(world: World, siege: Siege) -> None:
    mesh, rng = world.mesh, random.Random(siege.seed)
    async with Traffic(world.routers, numbered_calls(siege.seed), rate=siege.rate, most_in_flight=64) as traffic:
        await kill_at_random(mesh, traffic, siege, rng)
    await heal(world)

    # A call that its caller leaves has no more of an answer than its deadline allows.
    traffic.check(allowed=CLEAR | {"CANCELLED"})
    assert len(traffic.answered()) > siege.requests / 10, traffic.summary()
    assert {outcome.key for outcome in traffic.outcomes if outcome.code == "CANCELLED"} <= {"leaves"}
    runs = numbered.runs(world.diary)
    begun = {value: runs[value] for value in runs if siege.seed * NUMBERS <= value < (siege.seed + 1) * NUMBERS}
    assert begun
    assert {value: count for value, count in begun.items() if count > 2} == {}
    assert errors(mesh, *NAMES) == []


def numbered_calls(seed: int) -> Callable[[int], Ask]:
    """Of both models, 1 to MOST_ROWS + 1 rows each with a number of its own; some with little time, some are left."""

    def ask(number: int) -> Ask:
        rows = number % (MOST_ROWS + 1) + 1
        values = numbered.numbers(seed * NUMBERS + number * (MOST_ROWS + 1), rows)
        request = numbered.request(MODELS[number % 2], values)
        request.id = f"{seed}-{number}"
        kind = number % 16
        return Ask(
            request,
            lambda response: fault(request, response, values),
            key={3: "hurries", 7: "leaves"}.get(kind, f"user-{number % 50}"),
            sets_deadline=kind != 11,
            deadline_s=TIGHT_S if kind == 3 else 0,
            leaves_after_s=LEAVES_S if kind == 7 else 0,
        )

    return ask


def fault(request: pb.ModelInferRequest, response: pb.ModelInferResponse, values: list[float]) -> str:
    """What is wrong with an answer."""
    if response.id != request.id:
        return f"the answer to {response.id} came for {request.id}"
    return numbered.fault(response, values, {"1"})


async def kill_at_random(mesh: Mesh, traffic: Traffic, siege: Siege, rng: random.Random) -> None:
    """Let all requests flow; on the way, at random points, end processes as a crash would, every kind in turn."""
    points = sorted(rng.sample(range(siege.requests // 10, siege.requests * 3 // 4), siege.kills))
    kinds = [kind for _ in range(0, siege.kills, len(KINDS)) for kind in rng.sample(KINDS, len(KINDS))]
    for point, kind in zip(points, kinds, strict=False):
        await traffic.reached(point)
        pod = rng.randrange(2)
        if kind == "worker":
            await kill_worker(mesh, pod, rng)
        else:
            await mesh.kill(f"{kind}-{pod}")
            await mesh.start(f"{kind}-{pod}", ready=False)
    await traffic.reached(siege.requests)


async def kill_worker(mesh: Mesh, pod: int, rng: random.Random) -> None:
    """One of a pod's workers, or the other pod's where this one has none at the moment."""
    for number in (pod, 1 - pod):
        pids = [pid for model in MODELS for pid in workers(mesh, f"runtime-{number}", model)]
        if pids:
            os.kill(rng.choice(pids), signal.SIGKILL)
            return


async def heal(world: World) -> None:
    """Return when both routers give right answers for both models again, many in a row."""
    for name in NAMES:
        await world.mesh.ready(name)
    calm = [Traffic(address, mixed(model), rate=50) for address in world.routers for model in MODELS]
    for traffic in calm:
        async with traffic:
            await traffic.clean(50)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
