"""What it costs to know who calls: the gate by itself, and W1 with a key beside W1 without, in one run.

    python -m loadtest.access [--seconds 3] [--rounds 5] [--alone]

`--alone` leaves the mesh out. The rounds take turns, so that what else the machine does hits all alike.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, cast

from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.table import Table as Grid

from loadtest import h2load
from loadtest.bench import CALIBRATION, WrongAnswerError
from loadtest.mesh_stats import cpu_seconds, ok_count, processes
from loadtest.workloads import RANKER_SPEC, WORKLOADS, write_repository
from services.core.caller_spec import CallerSpec
from services.router.access.callers import Callers
from services.router.access.credentials import Authenticator
from services.router.access.gate import Access
from services.router.access.jwks import parse_keys
from services.router.access.tokens import SigningKey, Tokens
from services.router.desired import Desired
from services.router.flight import Flight
from services.router.inference import NO_PARAMETERS, Inference
from services.router.metrics import RouterMetrics
from services.router.table import Table
from tests.support.credentials import AUDIENCE, ISSUER, ec_key, new_key, published, signed, stored
from tests.support.mesh import Mesh

W1 = next(workload for workload in WORKLOADS if workload.name == "W1")
LIMITS = {"requests_per_s": 1e9, "rows_per_s": 1e12, "burst_s": 3600, "max_concurrency": 1 << 20}
_CALLS = 200_000
_SIGNER = ec_key()
ASKED = Inference("digits", "", "", NO_PARAMETERS, (), (), 100)


class _Keys:
    def __init__(self) -> None:
        self._keys = parse_keys(published({"k": _SIGNER}))

    def find(self, key_id: str | None) -> SigningKey:
        return self._keys[key_id or "k"]


def gate(callers: dict[str, Any], *, tokens: bool = False) -> Access:
    """A gate before one model, as a router builds it."""
    desired, metrics = Desired(), RouterMetrics(CollectorRegistry())
    desired.apply([("models/digits", b"{}", 1)])
    table, known = Table(metrics.follow), Callers()
    table.rebuild(desired, {})
    taken = Tokens(_Keys(), ISSUER, AUDIENCE, 30) if tokens else None
    access = Access(table, known, Authenticator(known, taken, metrics.refused), metrics.refused, is_open=True)
    access.follow({name: CallerSpec.parse(json.dumps(spec).encode()) for name, spec in callers.items()})
    return access


def ns_a_request(access: Access, headers: dict[str, str | bytes], calls: int = _CALLS) -> float:
    """What the gate adds to one request: being let in, held to its rows, and let go; the best of seven."""
    flight = Flight(cast("Any", None), cast("Any", None), 1, headers, 0)
    flight.inference, flight.peer, flight.rows = ASKED, "ipv4:127.0.0.1:40000", 1

    def once() -> None:
        flight.caller = flight.held = None
        flight.mark_ns = time.perf_counter_ns()
        access.admit(flight, ASKED)
        access.meter(flight)
        if flight.held is not None:
            flight.held.in_flight -= 1

    def nothing() -> None:
        flight.caller = flight.held = None
        flight.mark_ns = time.perf_counter_ns()
        if flight.held is not None:
            flight.held.in_flight -= 1

    return _best(once, calls) - _best(nothing, calls)


def _best(call: Callable[[], None], calls: int) -> float:
    best = float("inf")
    for _ in range(7):
        began = time.perf_counter_ns()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter_ns() - began) / calls)
    return best


def alone() -> dict[str, float]:
    """Case -> nanoseconds a request."""
    key = new_key()
    sent: dict[str, str | bytes] = {"authorization": f"Bearer {key.text()}"}
    token: dict[str, str | bytes] = {"authorization": f"Bearer {signed(_SIGNER, 'k')}"}
    plain, limited = {"keys": stored(key)}, {"keys": stored(key), "limits": LIMITS}
    unknown = gate({"shop": plain})

    def forgetful() -> None:
        unknown.follow({"shop": CallerSpec.model_validate(plain)})

    fresh = gate({"shop": {"tokens": [{"subject": "shop"}]}}, tokens=True)
    return {
        "nobody is known": ns_a_request(gate({}), {}),
        "a stranger, callers are known": ns_a_request(gate({"shop": plain}), {}),
        "a verified key": ns_a_request(gate({"shop": plain}), sent),
        "a verified key with every limit": ns_a_request(gate({"shop": limited}), sent),
        "a verified token": ns_a_request(fresh, token),
        "a key's first request": _first(unknown, sent, forgetful),
        "a token's first request": _first(
            fresh, token, lambda: fresh.follow({"shop": CallerSpec.model_validate({"tokens": [{"subject": "shop"}]})})
        ),
    }


def _first(access: Access, headers: dict[str, str | bytes], forget: Callable[[], None]) -> float:
    """Nanoseconds of an identification that nothing is remembered of; the best of 200."""
    best = float("inf")
    for _ in range(200):
        forget()
        began = time.perf_counter_ns()
        access.identify(headers, "ipv4:127.0.0.1:40000", b"")
        best = min(best, time.perf_counter_ns() - began)
    return best


async def beside(seconds: float, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Arm -> (requests/s, CPU µs of the router a request) of each round."""
    folder = Path(tempfile.mkdtemp(prefix="turnout-bench-"))
    write_repository(folder / "models")
    body = folder / "W1.bin"
    body.write_bytes(W1.grpc_body())
    plain, limited = new_key(), new_key()
    arms = {"no key": {}, "key": {"authorization": f"Bearer {plain.text()}"},
            "key and limits": {"authorization": f"Bearer {limited.text()}"}}  # fmt: skip
    found: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
    async with Mesh(folder, only=("runtime-0", "batcher-0", "router")) as mesh:
        await mesh.put(f"models/{W1.model}", RANKER_SPEC if W1.model == "ranker" else {})
        await mesh.put(f"routes/{W1.model}", {"stable": "1"})
        await mesh.put("callers/plain", {"keys": stored(plain)})
        await mesh.put("callers/limited", {"keys": stored(limited), "limits": LIMITS})
        await mesh.serving(W1.model, "1")
        address, metrics, parts = await mesh.address("router"), await mesh.metrics("router"), processes(mesh)

        def load(headers: dict[str, str], requests: int) -> h2load.Load:
            return h2load.run(
                address, body, requests=requests, connections=W1.connections, streams=W1.streams,
                log=folder / "h2load.log", timeout_s=10 * seconds + 60, headers=h2load.GRPC | headers,
            )  # fmt: skip

        first = await asyncio.to_thread(load, {}, CALIBRATION * 10)
        requests = max(CALIBRATION, int(first.requests_s * seconds))
        await asyncio.to_thread(load, {}, requests)
        for number in range(rounds):
            order = list(arms.items())
            for arm, headers in order if number % 2 else reversed(order):
                before, ok = cpu_seconds(parts)["router"], await ok_count(metrics, W1.model)
                result = await asyncio.to_thread(load, headers, requests)
                used = cpu_seconds(parts)["router"] - before
                if await ok_count(metrics, W1.model) - ok != requests:
                    raise WrongAnswerError(f"{arm}: not every call was answered OK")
                found[arm].append((result.requests_s, used / requests * 1e6))
    shutil.rmtree(folder)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3, help="about how long each load runs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="the gate only, no mesh")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120)
    grid = Grid("the gate by itself", "µs a request", title_justify="left")
    for case, ns in alone().items():
        grid.add_row(case, f"{ns / 1000:.2f}")
    console.print(grid)
    if not arguments.alone:
        found = asyncio.run(beside(arguments.seconds, arguments.rounds))
        grid = Grid("W1", "requests/s", "router's CPU, µs a request", "each round")
        for arm, rows in found.items():
            each = " ".join(f"{cpu:.1f}" for _, cpu in rows)
            grid.add_row(arm, f"{median(row[0] for row in rows):,.0f}", f"{median(row[1] for row in rows):.2f}", each)
        console.print(grid)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
