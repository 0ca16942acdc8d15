"""Optimised graphs of ONNX models, kept for the next start of a worker.

What a graph's optimisation takes grows with its nodes, what keeping it takes with its bytes. A kept graph holds for one
release of onnxruntime, one processor and one choice of providers, all of which are in its name, and so is its checksum:
one that is not as it was written is thrown away.
"""

import contextlib
import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LEAST_NODES = 150  # measured: a node costs 0.05 to 0.1 ms to optimise
_NODES_A_MIB = 20  # measured: a MiB costs about 1 ms to check, and 2 ms to write once
_CHUNK_BYTES = 1 << 20
_CPUINFO = Path("/proc/cpuinfo")


def is_worth(nodes: int, size_bytes: int) -> bool:
    """Whether a graph loads faster from its optimised form."""
    return nodes >= max(_LEAST_NODES, _NODES_A_MIB * size_bytes / (1 << 20))


def key(*parts: object) -> str:
    """A name for what an optimised graph depends on: `parts`, and this processor."""
    return hashlib.sha256(repr((parts, _processor(_CPUINFO))).encode()).hexdigest()[:24]


class GraphCache:
    """The optimised form of one graph, in a folder that may not be there. Nothing that goes wrong here is an error."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._prefix = f"optimised-{name}-"

    def load(self, opened: Callable[[Path], Any]) -> Any:
        """What `opened` makes of the kept graph; None when there is none that is whole and can be opened."""
        for file in self._folder.glob(f"{self._prefix}????????.onnx"):
            with contextlib.suppress(Exception):
                if file.name == self._name(file):
                    return opened(file)
            with contextlib.suppress(OSError):
                file.unlink()
        return None

    def fill(self, opened: Callable[[Path], Any]) -> Any:
        """What `opened` gives, which writes the graph to the path that it is told; None when it cannot be kept."""
        try:
            with tempfile.TemporaryDirectory(dir=self._folder) as place:
                written = Path(place) / "graph.onnx"
                session = opened(written)
                written.rename(self._folder / self._name(written))
        except Exception:  # noqa: BLE001 - a full disk, a folder of another's, a graph of too many bytes
            return None
        return session

    def _name(self, file: Path) -> str:
        checksum = 0
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                checksum = zlib.crc32(chunk, checksum)
        return f"{self._prefix}{checksum:08x}.onnx"


def _processor(cpuinfo: Path) -> str:
    """What a processor is and can."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return os.uname().machine
    told = {line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))}
    return os.uname().machine + "".join(sorted(told))
