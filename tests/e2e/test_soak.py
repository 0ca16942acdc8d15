"""Everything at once for a while, again and again: what a process uses, and how fast it is, stays what it is."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
import pytest_asyncio

from inference import grpc_service_pb2 as pb
from loadtest.mesh_stats import cpu_seconds, processes
from tests.support.featured import either, serve_featured
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, errors, noise, serve
from tests.support.swift_caller import Call, SwiftCaller
from tests.support.traffic import MODEL_INFER, Ask, Traffic, mixed

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

BOTH = frozenset({"1", "2"})
WARM_S, HALF_S, EVERY_S = 10.0, 15.0, 0.5
GROWTH_BYTES = 3 << 20  # between the halves; measured is a tenth of it
GROWTH_FILES = 4
REQUESTS, CALLERS, WARM_UP = 200_000, 8, 10_000
SLOWDOWN = 1.25  # of the last tenth, by processor time or by latency: machines are noisy, but not in both
NAMES = ("feature-proxy", "shadow", "runtime-0", "batcher-0", "router")


class Tenth(NamedTuple):
    """What a tenth of all requests took."""

    cpu_us: float  # of the whole mesh, a request
    latency_ms: float  # median


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


async def test_the_last_tenth_of_two_hundred_thousand_mixed_requests_is_as_fast_as_the_first(mesh: Mesh) -> None:
    address, faults = await mesh.listening("router", "grpc"), list[str]()
    async with AsyncExitStack() as stack:
        callers = [
            await stack.enter_async_context(SwiftCaller(address, MODEL_INFER, _calls(first, faults), at_once=8))
            for first in range(CALLERS)
        ]
        await _tenth(mesh, callers, WARM_UP)
        tenths, usages = [], []
        for number in range(1, 11):
            tenths.append(await _tenth(mesh, callers, WARM_UP + number * REQUESTS // 10))
            usages.append(await _watch(mesh, 2 * EVERY_S))

    assert faults == []
    assert errors(mesh, *NAMES) + noise(mesh, *NAMES) == []
    first, last = tenths[:3], tenths[-3:]
    by_cpu = min(tenth.cpu_us for tenth in last) / median(tenth.cpu_us for tenth in first)
    by_latency = min(tenth.latency_ms for tenth in last) / median(tenth.latency_ms for tenth in first)
    assert min(by_cpu, by_latency) < SLOWDOWN, tenths
    growth = _growth(_joined(usages[1:4]), _joined(usages[-3:]))
    assert {name: grown for name, grown in growth.items() if grown.resident_bytes > GROWTH_BYTES} == {}
    assert {name: grown for name, grown in growth.items() if grown.files > GROWTH_FILES or grown.threads > 0} == {}


async def _tenth(mesh: Mesh, callers: Sequence[SwiftCaller], count: int) -> Tenth:
    """Go on until there are `count` outcomes in all."""
    done = sum(caller.outcomes for caller in callers)
    for caller in callers:
        caller.took_s.clear()
    before = sum(cpu_seconds(processes(mesh)).values())
    await asyncio.gather(*(caller.answered(count // CALLERS) for caller in callers))
    spent_s = sum(cpu_seconds(processes(mesh)).values()) - before
    return Tenth(spent_s / (count - done) * 1e6, median(took for caller in callers for took in caller.took_s) * 1e3)


def _calls(first: int, faults: list[str]) -> Callable[[int], Call]:
    """Those of one caller; what is wrong with answers is added to `faults`. Every 40th is left at once."""
    kinds = _all_kinds()

    def call(number: int) -> Call:
        number = number * CALLERS + first
        ask, is_bad, leaves = kinds(number), number % 50 == 0, number % 40 == 7

        def check(payload: bytes | None) -> None:
            if payload is not None:
                fault = ask.fault(pb.ModelInferResponse.FromString(payload))
            else:
                fault = "" if is_bad or leaves else f"call {number} failed"
            if fault:
                faults.append(fault)

        return Call(ask.request.SerializeToString(), check, leaves)

    return call


def _joined(usages: Sequence[Mapping[str, list[Usage]]]) -> dict[str, list[Usage]]:
    return {name: [usage for each in usages for usage in each[name]] for name in usages[0]}


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
