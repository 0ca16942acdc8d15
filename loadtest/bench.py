"""`make bench`: the reference workloads against a mesh of its own on this machine; a table, and bench-results.json.

A figure counts only when every answer was right: the router's count of OK answers must equal the generator's, and
sampled answers must equal the same model run in this process. With --check the floors decide the exit code too.
"""

import argparse
import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc
from loadtest import h2load
from loadtest.mesh_stats import cpu_seconds, ok_count, processes
from loadtest.workloads import IMAGE_SPEC, RANKER_SPEC, WORKLOADS, Workload, session, write_repository
from tests.support.mesh import Mesh

SAMPLES = 16
CALIBRATION = 300


class WrongAnswerError(Exception):
    """A figure that does not count: an answer was wrong, or some were not answers."""


async def check_answers(address: str, workload: Workload, repository: Path) -> None:
    """Raise WrongAnswerError unless sampled answers equal the model run in this process."""
    model = session(repository, workload.model)
    rng = np.random.default_rng()
    async with grpc.aio.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        stub = grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for _ in range(SAMPLES):
            inputs = rng.normal(size=(workload.rows, *workload.inner)).astype(np.float32)
            reply: pb.ModelInferResponse = await stub.ModelInfer(workload.request(inputs), timeout=30)
            got = np.frombuffer(reply.raw_output_contents[0], np.float32).reshape(reply.outputs[0].shape)
            expected = model.run(None, {"x": inputs})[0]
            if not np.allclose(got, expected, rtol=1e-4, atol=1e-5):
                raise WrongAnswerError(f"{workload.name}: an answer differs by {np.abs(got - expected).max()}")


def in_process_us(workload: Workload, repository: Path) -> float:
    """Microseconds of one request of this workload in this process, by onnxruntime alone."""
    model, inputs = session(repository, workload.model), {"x": workload.inputs()}
    best = float("inf")
    for _ in range(5):
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < 0.2:
            model.run(None, inputs)
            count += 1
        best = min(best, (time.perf_counter() - begun) / count)
    return best * 1e6


async def measure(mesh: Mesh, workload: Workload, folder: Path, seconds: float) -> dict[str, Any]:
    """One row: warmed up, calibrated to about `seconds`, counted by both sides."""
    address, metrics = await mesh.address("router"), await mesh.metrics("router")
    body = folder / f"{workload.name}.bin"
    body.write_bytes(workload.grpc_body())

    def load(requests: int) -> h2load.Load:
        return h2load.run(
            address,
            body,
            requests=requests,
            connections=workload.connections,
            streams=workload.streams,
            log=folder / "h2load.log",
            timeout_s=10 * seconds + 60,
        )

    await check_answers(address, workload, mesh.repository)
    first = await asyncio.to_thread(load, CALIBRATION)
    warm = await asyncio.to_thread(load, max(CALIBRATION, int(first.requests_s)))
    watched = processes(mesh)
    before, ok_before = cpu_seconds(watched), await ok_count(metrics, workload.model)
    result = await asyncio.to_thread(load, max(CALIBRATION, int(warm.requests_s * seconds)))
    after, ok_after = cpu_seconds(watched), await ok_count(metrics, workload.model)
    await check_answers(address, workload, mesh.repository)
    if ok_after - ok_before != result.requests:
        raise WrongAnswerError(f"{workload.name}: {result.requests} calls, {ok_after - ok_before} answered OK")
    cpu_us = {name: (after[name] - before[name]) / result.requests * 1e6 for name in watched}
    return _row(workload, result, cpu_us, in_process_us(workload, mesh.repository))


def _row(workload: Workload, load: h2load.Load, cpu_us: Mapping[str, float], bare_us: float) -> dict[str, Any]:
    rows_s, total_us = load.requests_s * workload.rows, sum(cpu_us.values())
    misses = []
    if load.requests_s < workload.floor_requests_s:
        misses.append(f"{load.requests_s:,.0f} requests/s, floor {workload.floor_requests_s:,.0f}")
    if rows_s < workload.floor_rows_s:
        misses.append(f"{rows_s:,.0f} rows/s, floor {workload.floor_rows_s:,.0f}")
    if workload.ceiling_cpu_us and total_us > workload.ceiling_cpu_us:
        misses.append(f"{total_us:.0f} µs of CPU a request, ceiling {workload.ceiling_cpu_us:.0f}")
    if workload.ceiling_p50_ms and load.p50_ms > workload.ceiling_p50_ms:
        misses.append(f"p50 {load.p50_ms:.2f} ms, ceiling {workload.ceiling_p50_ms:g}")
    return {
        "workload": workload.name,
        "model": workload.model,
        "rows": workload.rows,
        "concurrency": workload.concurrency,
        "requests": load.requests,
        "requests_s": load.requests_s,
        "rows_s": rows_s,
        "p50_ms": load.p50_ms,
        "p99_ms": load.p99_ms,
        "cpu_us": dict(cpu_us),
        "cpu_us_total": total_us,
        "in_process_us": bare_us,
        "cpu_ratio": total_us / bare_us,
        "misses": misses,
    }


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("", *columns):
        table.add_column(column, justify="right", no_wrap=True)
    return table


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    names = list(rows[0]["cpu_us"])
    measures = ("rows", "at once", "requests/s", "rows/s", "p50 ms", "p99 ms")
    speed = _table("Reference workloads; the generator shares these cores", *measures)
    cpu = _table("CPU of one request, µs; bare: the model alone, in one process", *names, "sum", "bare", "ratio")
    for row in rows:
        figures = [f"{row['requests_s']:,.0f}", f"{row['rows_s']:,.0f}", f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}"]
        speed.add_row(row["workload"], str(row["rows"]), str(row["concurrency"]), *figures)
        ends = [f"{row['cpu_us_total']:.1f}", f"{row['in_process_us']:.1f}", f"{row['cpu_ratio']:.1f}"]
        cpu.add_row(row["workload"], *(f"{row['cpu_us'][name]:.1f}" for name in names), *ends)
    console.print(speed)
    console.print(cpu)
    for row in rows:
        for miss in row["misses"]:
            console.print(f"{row['workload']}: {miss}", style="yellow")


async def bench(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    chosen = [workload for workload in WORKLOADS if not arguments.only or workload.name in arguments.only]
    folder = Path(tempfile.mkdtemp(prefix="turnout-bench-"))
    write_repository(folder / "models")
    async with Mesh(folder, only=("runtime-0", "batcher-0", "router")) as mesh:
        for model, spec in (("ranker", RANKER_SPEC), ("image", IMAGE_SPEC)):
            await mesh.put(f"models/{model}", spec)
            await mesh.put(f"routes/{model}", {"stable": "1"})
            await mesh.serving(model, "1")
        rows = []
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("measuring", total=len(chosen))
            for workload in chosen:
                progress.update(task, description=workload.name)
                rows.append(await measure(mesh, workload, folder, arguments.seconds))
                progress.advance(task)
    shutil.rmtree(folder)  # of a failure it is kept, for its logs
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", metavar="W1", help="workloads to run; default: all")
    parser.add_argument("--seconds", type=float, default=8, help="about how long each one is measured")
    parser.add_argument("--output", type=Path, default=Path("bench-results.json"))
    parser.add_argument("--check", action="store_true", help="fail when a floor is missed")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 180)
    try:
        rows = asyncio.run(bench(arguments, console))
    except (h2load.MissingError, WrongAnswerError, RuntimeError) as error:
        console.print(str(error), style="red")
        return 1
    show(console, rows)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    arguments.output.write_text(json.dumps({"machine": machine, "workloads": rows}, indent=2) + "\n")
    console.print(f"written to {arguments.output}")
    return int(arguments.check and any(row["misses"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
