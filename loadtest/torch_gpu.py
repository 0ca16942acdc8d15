"""The torch backend on a GPU: `python -m loadtest.torch_gpu`. One table; without a GPU one line, and exit status 1.

For each number of rows, with CUDA graphs and without: what the copy in, the computation and the copy out take (by CUDA
events, apart from each other), what a whole call of the backend takes, and, with some processes calling as fast as
they can, the calls of all in a second and how busy the GPU is (by nvidia-smi). What one process copies overlaps with
what another computes: where calls a second times all three exceed a second, so much is done at once.
"""

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from services.core.torch_spec import TorchSettings
from services.runtime.backends import Options
from services.runtime.backends.torch import Model

SIDE, CHANNELS, LAYERS = 64, 32, 8
CALLS = 200
SAMPLE_S = 0.2


class Point(NamedTuple):
    """What is measured together."""

    file: Path
    rows: int
    is_captured: bool

    def images(self) -> np.ndarray:
        return np.zeros((self.rows, 3, SIDE, SIDE), np.float32)

    def model(self) -> Model:
        model = Model()
        settings = TorchSettings(cuda_graphs=(self.rows,) if self.is_captured else ())
        model.load(self.file, Options(device="cuda", torch=settings))
        for _ in range(10):
            model.run({"x": self.images()})
        return model


class Convolutions(torch.nn.Module):
    """Many small kernels, as image models have: launching them is what CUDA graphs save."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [3, *[CHANNELS] * LAYERS]
        layers = [torch.nn.Conv2d(before, after, 3, padding=1) for before, after in pairwise(sizes)]
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.mean((2, 3))


def stages_us(point: Point) -> tuple[float, float, float]:
    """Medians of the copy in, the computation and the copy out."""
    call: Any = point.model()._call  # noqa: SLF001 - a part of the backend's call is what is measured
    given = torch.from_numpy(point.images())
    times = []
    with torch.inference_mode():
        for _ in range(CALLS):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            marks[0].record()
            value = given.to("cuda")
            marks[1].record()
            answer = call(value)
            marks[2].record()
            answer.cpu()
            marks[3].record()
            torch.cuda.synchronize()
            times.append([1000 * a.elapsed_time(b) for a, b in pairwise(marks)])
    copy_in, compute, copy_out = (statistics.median(stage) for stage in zip(*times, strict=True))
    return copy_in, compute, copy_out


def call_us(point: Point) -> float:
    model, given, times = point.model(), {"x": point.images()}, []
    for _ in range(CALLS):
        began = time.perf_counter()
        model.run(given)
        times.append(1e6 * (time.perf_counter() - began))
    return statistics.median(times)


def saturate(point: Point, processes: int, seconds: float) -> tuple[float, float]:
    """Calls a second of all processes, and percent of the time in which the GPU computes."""
    spawn = multiprocessing.get_context("spawn")
    ready, begin = spawn.Barrier(processes + 1), spawn.Event()
    counts: Any = spawn.Queue()
    callers = [spawn.Process(target=_busy, args=(point, ready, begin, seconds, counts)) for _ in range(processes)]
    for caller in callers:
        caller.start()
    ready.wait(timeout=300)
    begin.set()
    samples, until = [], time.monotonic() + seconds
    while time.monotonic() < until - SAMPLE_S:
        time.sleep(SAMPLE_S)
        samples.append(_utilisation())
    calls = sum(counts.get(timeout=60) for _ in callers)
    for caller in callers:
        caller.join()
    return calls / seconds, statistics.mean(samples[2:] or samples)  # the driver's own window reaches back


def _busy(point: Point, ready: Any, begin: Any, seconds: float, counts: Any) -> None:
    model, given, calls = point.model(), {"x": point.images()}, 0
    ready.wait(timeout=300)
    begin.wait()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        model.run(given)
        calls += 1
    counts.put(calls)


def _utilisation() -> float:
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]
    return float(subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU that torch can use: nothing is measured", file=sys.stderr)
        return 1
    columns = ["rows", "CUDA graphs", "in µs", "compute µs", "out µs", "call µs", "calls/s", "GPU busy %"]
    table = Table(*columns, title=f"{torch.cuda.get_device_name()}, {arguments.processes} processes at saturation")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that TorchScript is deprecated
        file = Path(folder) / "model.pt"
        torch.jit.trace(Convolutions().eval(), torch.zeros(2, 3, SIDE, SIDE)).save(file)
        for rows in arguments.rows:
            for is_captured in (False, True):
                point = Point(file, rows, is_captured)
                figures = [*stages_us(point), call_us(point), *saturate(point, arguments.processes, arguments.seconds)]
                table.add_row(str(rows), "on" if is_captured else "off", *[f"{figure:,.0f}" for figure in figures])
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
