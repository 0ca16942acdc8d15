"""Everything at once for a while, again and again: memory, files and threads of every process stay what they are."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from loadtest.mesh_stats import processes
from tests.support.featured import either, serve_featured
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, errors, serve
from tests.support.traffic import Ask, Traffic, mixed

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

BOTH = frozenset({"1", "2"})
WARM_S, HALF_S, EVERY_S = 10.0, 15.0, 0.5
GROWTH_BYTES = 3 << 20  # between the halves; measured is a tenth of it
GROWTH_FILES = 4
NAMES = ("feature-proxy", "shadow", "runtime-0", "batcher-0", "router")


class Usage(NamedTuple):
    resident_bytes: int
    files: int
    threads: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with Mesh(tmp_path_factory.mktemp("soak"), only=NAMES, settings=QUICK) as mesh:
        await serve(mesh, "numbers", 1, 2, route={"stable": "1", "canary": {"2": 20}, "shadow": {"2": 100}})
        await serve_featured(mesh)
        yield mesh


async def test_memory_files_and_threads_are_flat_under_mixed_load(mesh: Mesh) -> None:
    async with Traffic(await mesh.listening("router", "grpc"), _all_kinds(), rate=300) as traffic:
        await _watch(mesh, WARM_S)
        first = await _watch(mesh, HALF_S)
        second = await _watch(mesh, HALF_S)

    traffic.check(allowed={"NOT_FOUND"})
    assert errors(mesh, *NAMES) == []
    assert first.keys() == second.keys()  # nobody was replaced
    growth = _growth(first, second)
    assert {name: grown for name, grown in growth.items() if grown.resident_bytes > GROWTH_BYTES} == {}
    assert {name: grown for name, grown in growth.items() if grown.files > GROWTH_FILES} == {}
    assert {name: grown for name, grown in growth.items() if grown.threads > 0} == {}


async def test_routes_that_change_all_the_time_cost_no_request_and_no_memory(mesh: Mesh) -> None:
    async with Traffic(await mesh.listening("router", "grpc"), _all_kinds(), rate=100) as traffic:
        await _edit(mesh, WARM_S)
        first, _ = await asyncio.gather(_watch(mesh, HALF_S), _edit(mesh, HALF_S))
        second, _ = await asyncio.gather(_watch(mesh, HALF_S), _edit(mesh, HALF_S))

    traffic.check(allowed={"NOT_FOUND"})
    assert first.keys() == second.keys()
    growth = _growth(first, second)
    assert {name: grown for name, grown in growth.items() if grown.resident_bytes > GROWTH_BYTES} == {}


def _all_kinds() -> Callable[[int], Ask]:
    """Good requests of two models, and one in fifty for a version that there is not."""
    good = either(mixed("numbers", BOTH))

    def ask(number: int) -> Ask:
        asked = good(number)
        if number % 50 == 0:
            asked.request.model_version = "77"
        return asked

    return ask


async def _edit(mesh: Mesh, seconds: float) -> None:
    """Another route twenty times a second."""
    for number in range(int(seconds * 20)):
        await mesh.put("routes/numbers", {"stable": "1", "canary": {"2": number % 100}, "reason": f"edit {number}"})
        await asyncio.sleep(0.05)


async def _watch(mesh: Mesh, seconds: float) -> dict[str, list[Usage]]:
    """What every process uses, looked at again and again."""
    seen: dict[str, list[Usage]] = {}
    for _ in range(int(seconds / EVERY_S)):
        for name, pids in processes(mesh).items():
            for number, pid in enumerate(pids):
                seen.setdefault(f"{name}/{number}/{pid}", []).append(_usage(pid))
        await asyncio.sleep(EVERY_S)
    return seen


def _usage(pid: int) -> Usage:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Usage(int(status["VmRSS"].split()[0]) << 10, files, int(status["Threads"]))


def _growth(first: Mapping[str, Sequence[Usage]], second: Mapping[str, Sequence[Usage]]) -> dict[str, Usage]:
    """How much more each process used in the second half than in the first."""
    middles = {name: (_middle(first[name]), _middle(second[name])) for name in first}
    return {
        name: Usage(*(later - earlier for earlier, later in zip(before, after, strict=True)))
        for name, (before, after) in middles.items()
    }


def _middle(seen: Sequence[Usage]) -> Usage:
    return Usage(*(sorted(values)[len(values) // 2] for values in zip(*seen, strict=True)))
