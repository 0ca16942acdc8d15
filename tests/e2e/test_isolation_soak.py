"""A model that dies, loops, shouts and leaks all the time moves the others' p99 by less than a fifth."""

import asyncio
from collections.abc import AsyncIterator
from statistics import median

import numpy as np
import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from tests.support import numbered, rogue
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, introduce, serve
from tests.support.traffic import Ask, Traffic

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

PHASE_S, PAIRS = 20.0, 4  # calm, wild, calm, wild, …, calm: what the machine does meanwhile shows in both
RATE, MISCHIEF_RATE = 150, 1.0  # calls a second
MOST = 1.2
WAYS = (rogue.ABORT, rogue.LOOP, rogue.SHOUT, rogue.CRASH, rogue.LEAK, rogue.FORK, rogue.EXIT, rogue.OPEN_FILES)
SPEC = {
    "trusted": True, "idempotent": False, "batching": {"max_batch_size": 0},
    "instances": {"threads": 1},
    "limits": {
        "max_execution_ms": 500, "max_memory_bytes": 320 << 20, "max_processes": 8, "max_open_files": 128,
        "max_restarts": 1000,
    },
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    only = ("runtime-0", "batcher-0", "router")
    async with Mesh(tmp_path_factory.mktemp("isolation"), only=only, settings=QUICK) as mesh:
        folder = mesh.repository / "wild" / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(rogue.SOURCE)
        await serve(mesh, "numbers", 1)
        await introduce(mesh, "wild", 1, spec=SPEC)
        yield mesh


def calm(number: int) -> Ask:
    values = numbered.numbers(number, 1)
    return Ask(numbered.request("numbers", values), lambda response: numbered.fault(response, values, frozenset({"1"})))


def wild(number: int) -> Ask:
    request = pb.ModelInferRequest(model_name="wild")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    row = [WAYS[number % len(WAYS)], number]  # not twice the same: that would be refused for a minute
    request.raw_input_contents.append(np.array(row, np.float32).tobytes())
    return Ask(request, lambda _response: "", deadline_s=5)


async def test_one_models_mischief_moves_the_others_p99_by_less_than_a_fifth(mesh: Mesh) -> None:
    address = await mesh.listening("router", "grpc")
    calm_s, wild_s = [], []
    async with Traffic(address, calm, rate=RATE) as traffic:
        await traffic.clean()
        calm_s.append(await _p99(traffic))
        for _ in range(PAIRS):
            async with Traffic(address, wild, rate=MISCHIEF_RATE):
                wild_s.append(await _p99(traffic))
            await asyncio.sleep(10)  # the last restart
            calm_s.append(await _p99(traffic))

    traffic.check()
    assert traffic.failed() == []
    # Each wild phase beside the calm ones around it: what drifts meanwhile cancels out.
    moved = median(2 * wild / (calm_s[n] + calm_s[n + 1]) for n, wild in enumerate(wild_s))
    told = f"p99 in ms: calm {_ms(calm_s)}, beside mischief {_ms(wild_s)}; {moved:.2f} times"
    print(told)  # noqa: T201 - the figure of docs/isolation.md
    assert moved < MOST, told


async def _p99(traffic: Traffic) -> float:
    began_s = traffic.now_s()
    await asyncio.sleep(PHASE_S)
    return traffic.quantile_s(0.99, began_s, traffic.now_s() - 0.5)


def _ms(seconds: list[float]) -> list[float]:
    return [round(each * 1000, 1) for each in seconds]
