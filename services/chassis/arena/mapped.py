"""A peer's arena as its reader sees it: mapped read-only, every block checked."""

import mmap
import os
import re
import stat
from bisect import bisect_right
from pathlib import Path

from services.chassis.arena.layout import HEADER, LINE, MAGIC, NONCE_BYTES, PAGE, PREFIX, BlockError

_NAME = re.compile(rf"{PREFIX}[A-Za-z0-9-]{{1,64}}")
_FLAGS = mmap.MAP_SHARED | mmap.MAP_POPULATE


class MappedArena:
    """The arena `name`. Raises OSError or ValueError when there is no such arena that this process may read."""

    def __init__(self, folder: Path, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not the name of an arena")
        self.path = folder / name
        self._fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        self._size = 0  # as far as it is mapped
        self._starts: list[int] = []
        self._parts: list[memoryview] = []  # each of one or more whole segments of the owner
        try:
            self.nonce = self._read_nonce()
        except BaseException:
            self.close()
            raise

    def view(self, offset: int, length: int, generation: int) -> memoryview:
        """The data of a block, where it lies; it stays as it is until the block is given back. Raises BlockError."""
        if offset + length > self._size:
            try:
                self._map_more()
            except (OSError, ValueError) as error:
                raise BlockError(f"what the arena has grown by cannot be mapped: {error}") from error
        position = bisect_right(self._starts, offset) - 1
        part, at = self._parts[position], offset - self._starts[position]
        if at < 2 * LINE or at % LINE or at + length > len(part):
            raise BlockError(f"no block of {length} bytes lies at {offset} in the {self._size} bytes of the arena")
        found, found_length = HEADER.unpack_from(part, at - LINE)
        if (found, found_length) != (generation, length):
            raise BlockError(
                f"the block at {offset} has generation {found} and {found_length} bytes,"
                f" not generation {generation} and {length} bytes as its sender says"
            )
        return part[at : at + length]

    def close(self) -> None:
        """Let go; views that are still in use keep their memory until they go."""
        os.close(self._fd)
        self._parts.clear()

    def _read_nonce(self) -> bytes:
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size < PAGE:
            raise ValueError(f"{self.path.name} is not an arena")
        self._map_more()
        first = self._parts[0]
        if first[: len(MAGIC)] != MAGIC:
            raise ValueError(f"{self.path.name} does not begin as an arena")
        return bytes(first[len(MAGIC) : len(MAGIC) + NONCE_BYTES])

    def _map_more(self) -> None:
        """Map what the file has grown by. Raises OSError."""
        size = os.fstat(self._fd).st_size // PAGE * PAGE
        if size > self._size:
            memory = mmap.mmap(self._fd, size - self._size, flags=_FLAGS, prot=mmap.PROT_READ, offset=self._size)
            self._parts.append(memoryview(memory))
            self._starts.append(self._size)
            self._size = size
