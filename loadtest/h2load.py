"""h2load as the load generator: native, closed loop, so that it takes little of the cores it shares with the mesh."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

METHOD = "/inference.GRPCInferenceService/ModelInfer"
GRPC = {"content-type": "application/grpc", "te": "trailers"}
_COUNTS = re.compile(r"requests: (\d+) total, .* (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout")
_STATUSES = re.compile(r"status codes: (\d+) 2xx")
_FINISHED = re.compile(r"finished in ([0-9.]+)(us|ms|s|m)")
_UNIT_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


class MissingError(Exception):
    """h2load is not on this machine."""


class Load(NamedTuple):
    """What the generator saw. It counts a refused gRPC call as a success: compare with the router's own count."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def requests_s(self) -> float:
        return self.requests / self.seconds


def run(  # noqa: PLR0913 - what h2load takes
    address: str,
    body: Path,
    *,
    requests: int,
    connections: int,
    streams: int,
    log: Path,
    timeout_s: float,
    path: str = METHOD,
    headers: Mapping[str, str] = GRPC,
    is_http1: bool = False,
) -> Load:
    """Post `body`, as gRPC calls unless told otherwise.

    Raises MissingError, or RuntimeError with h2load's words when a request failed.
    """
    program = shutil.which("h2load")
    if program is None:
        raise MissingError("h2load is not installed: apt install nghttp2-client")
    log.unlink(missing_ok=True)
    command = [
        *(program, "-n", str(requests), "-c", str(connections), "-m", str(streams), "-t", "1", "-d", str(body)),
        *(part for name, value in headers.items() for part in ("-H", f"{name}: {value}")),
        *(["--h1"] if is_http1 else []),
        *(f"--log-file={log}", f"http://{address}{path}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    counts, finished, good = (words.search(done.stdout) for words in (_COUNTS, _FINISHED, _STATUSES))
    if not counts or not finished or not good or not int(counts[1]) == int(counts[2]) == int(good[1]):
        raise RuntimeError(f"h2load: {done.stdout[-600:]}{done.stderr[-600:]}")
    micros = np.loadtxt(log, usecols=2, dtype=np.int64)
    p50, p99 = np.percentile(micros, [50, 99]) / 1000
    return Load(int(counts[2]), float(finished[1]) * _UNIT_S[finished[2]], float(p50), float(p99))
