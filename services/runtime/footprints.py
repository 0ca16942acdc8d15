"""How much memory a worker will need: as measured of the same content before, else as its spec allows, else guessed."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

from services.runtime.kept_json import KeptJson

_MIB = 1 << 20
_BASE_MIB = {"tensorflow": 700, "transformers": 700, "torch": 450, "mlflow": 300}  # of a framework without a model
_OTHER_BASE_MIB = 150
_FACTOR = 2.0  # of an artifact's bytes, once loaded
_MARGIN = 1.1  # over what was measured
_GROWN = 1.05  # a smaller change is not worth a write
_MOST = 4096  # artifacts remembered


class Need(NamedTuple):
    size: int  # bytes
    is_guess: bool


class Footprints:
    """Peak bytes by digest. The file is a convenience: a lost one costs a guess."""

    def __init__(self, file: Path) -> None:
        self._kept = KeptJson(file, "footprints")
        self._peaks: dict[str, int] = {}
        self.is_unsaved = False

    def note(self, digest: str, size: int) -> None:
        """A worker of this content was seen to use so much."""
        if size > self._peaks.get(digest, 0) * _GROWN:
            self._peaks.pop(digest, None)
            self._peaks[digest] = size
            self.is_unsaved = True
            while len(self._peaks) > _MOST:
                del self._peaks[next(iter(self._peaks))]

    def need(self, digest: str, framework: str, artifact: int, limit: int | None) -> Need:
        """Of a worker that is to load `artifact` bytes; never more than `limit`, at which it would be killed."""
        measured = self._peaks.get(digest)
        if measured is not None:
            size = int(measured * _MARGIN)
            return Need(min(size, limit) if limit is not None else size, is_guess=False)
        if limit is not None:
            return Need(limit, is_guess=False)
        base = _BASE_MIB.get(framework, _OTHER_BASE_MIB) * _MIB
        return Need(base + int(artifact * _FACTOR), is_guess=True)

    async def load(self) -> None:
        held = await asyncio.to_thread(lambda: self._kept.read(_parsed))
        if held is not None:
            self._peaks = held

    async def save(self) -> None:
        self.is_unsaved = False
        await asyncio.to_thread(self._kept.write, json.dumps(self._peaks))


def _parsed(held: Any) -> dict[str, int]:
    return {str(digest): int(size) for digest, size in held.items()}


def size_of(artifact: Path) -> int:
    """Bytes of an artifact: of its folder, where it is one, else of all that lies beside its file."""
    folder = artifact if artifact.is_dir() else artifact.parent
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
