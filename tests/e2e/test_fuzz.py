"""Requests made bad in thousands of ways, among good ones: every one is answered, and no process notices.

`make soak` sends twenty thousand over each protocol, other tests a tenth of that.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from google.protobuf.message import Message

from inference import grpc_service_pb2 as pb
from tests.support.channels import own_channel
from tests.support.echoes import NAMES, ROUTERS, TFS, echo_mesh
from tests.support.fuzzing import Asked, Door, Golden, GrpcDoor, HttpDoor, Told, fuzz
from tests.support.goldens import binary_goldens, grpc_goldens, json_goldens
from tests.support.mesh import Mesh
from tests.support.mesh_probes import errors, workers
from tests.support.message_mutator import MessageMutator
from tests.support.mutator import Mutator
from tests.support.serving_goldens import PREDICT, predict_goldens, v1_goldens
from tests.support.traffic import MODEL_INFER
from turnout.tfserving.prediction_service_pb2 import PredictRequest

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

COUNTS = [2000, pytest.param(20_000, marks=pytest.mark.slow)]
GROWTH_BYTES = 64 << 20  # past what a tenth of the requests took: buffers, caches of all that may be cached


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with echo_mesh(tmp_path_factory.mktemp("fuzz"), **TFS) as mesh:
        yield mesh


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def nobody_notices(mesh: Mesh) -> AsyncIterator[None]:
    """The same processes serve afterwards, and have logged no error of their own."""
    before = [mesh.child(name).pid for name in NAMES], workers(mesh, "runtime-0", "every")
    yield
    assert ([mesh.child(name).pid for name in NAMES], workers(mesh, "runtime-0", "every")) == before
    assert errors(mesh, *NAMES) == []


def resident_bytes(mesh: Mesh) -> int:
    """Of what a router, the batcher and the runtime's own process hold, all together."""
    pages = (Path(f"/proc/{mesh.child(name).pid}/statm").read_text().split()[1] for name in NAMES)
    return sum(int(each) * 4096 for each in pages)


def check(told: Told, count: int) -> None:
    assert told.faults == []
    assert told.counts.total() == count + -(-count // 10)
    assert len(told.counts) > 2, told.counts  # some were refused in different ways, some were good


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("router", ROUTERS)
async def test_messages_of_the_open_inference_protocol(mesh: Mesh, router: str, count: int) -> None:
    address = await mesh.listening(router, "grpc")

    await over_grpc(mesh, address, MODEL_INFER, pb.ModelInferRequest, grpc_goldens(), count)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("router", ROUTERS)
async def test_messages_of_tensorflow_serving(mesh: Mesh, router: str, count: int) -> None:
    address = await mesh.listening(router, "tfs-grpc")

    await over_grpc(mesh, address, PREDICT, PredictRequest, predict_goldens(), count)


async def over_grpc(
    mesh: Mesh, address: str, method: str, kind: type[Message], goldens: Sequence[Golden], count: int
) -> None:
    mutator = MessageMutator(Mutator(f"{method} {count}", [golden.asked.body for golden in goldens]), kind)
    async with own_channel(address) as channel:
        door = GrpcDoor(channel, method)
        await through(mesh, door, goldens, lambda asked: Asked(mutator.spoilt(asked.body)), count)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_json(mesh: Mesh, version: str, count: int) -> None:
    goldens = v1_goldens() if version == "v1" else json_goldens()
    mutator = Mutator(f"json {version} {count}", [golden.asked.body for golden in goldens])

    await over_http(mesh, goldens, lambda asked: asked._replace(body=mutator.spoilt(asked.body)), count)


@pytest.mark.parametrize("count", COUNTS)
async def test_binary_tensors(mesh: Mesh, count: int) -> None:
    goldens = binary_goldens()
    mutator = Mutator(f"binary {count}", [golden.asked.body for golden in goldens])

    def mutated(asked: Asked) -> Asked:
        (name, length), *others = asked.headers
        body, said = mutator.beheaded(asked.body, int(length))
        return asked._replace(body=body, headers=[(name, said), *others])

    await over_http(mesh, goldens, mutated, count)


async def over_http(mesh: Mesh, goldens: Sequence[Golden], mutated: Callable[[Asked], Asked], count: int) -> None:
    door = HttpDoor(await mesh.listening("router", "rest"))
    await through(mesh, door, goldens, mutated, count)
    await door.close()


async def through(
    mesh: Mesh, door: Door, goldens: Sequence[Golden], mutated: Callable[[Asked], Asked], count: int
) -> None:
    """A tenth more than `count`, for what grows with the first requests only."""
    check(await fuzz(door, goldens, mutated, count // 10), count // 10)
    before = resident_bytes(mesh)
    check(await fuzz(door, goldens, mutated, count), count)

    assert resident_bytes(mesh) - before < GROWTH_BYTES
