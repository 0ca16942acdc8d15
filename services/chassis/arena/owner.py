"""An arena as its owner holds it: the file, its lock, and the blocks that are out."""

import fcntl
import mmap
import os
import secrets
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from services.chassis.arena.layout import (
    HEADER,
    LINE,
    MAGIC,
    NONCE_BYTES,
    PAGE,
    PREFIX,
    Data,
    block_bytes,
    encode_block,
)
from services.chassis.arena.space import Space

_SEGMENT_BYTES = 8 << 20  # taken from the host at a time: reserving and mapping it takes some milliseconds
_MODE = 0o640  # the peer's group may read: one that could cut the file off would kill its owner
_FLAGS = mmap.MAP_SHARED | mmap.MAP_POPULATE  # a fault a page, each when first touched, costs twice as much


class Arena:
    """A named file in shared memory, made by this process and locked while it lives. Raises OSError when it cannot be.

    It is one page until `put` needs more; then it grows by segments up to `limit_bytes`. Space is reserved before it is
    used, so that a full host is an error here and not a fault in whoever touches it.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.path, self._fd = _make(folder)
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self._limit_bytes = limit_bytes
        self._space = Space()
        self._starts: list[int] = []  # of the segments
        self._segments: list[mmap.mmap] = []
        self._blocks: dict[int, int] = {}  # generation -> where its header lies
        self._generation = secrets.randbits(32) << 16  # so that another arena's generations are not this one's
        try:
            self._reserve(PAGE)
        except OSError:
            self.close()
            raise
        self._segments[0][: len(MAGIC) + NONCE_BYTES] = MAGIC + self.nonce

    @property
    def reserved_bytes(self) -> int:
        return self._space.size

    @property
    def blocks(self) -> int:
        """How many are out."""
        return len(self._blocks)

    def put(self, pieces: Sequence[Data], length: int) -> bytes | None:
        """Write `pieces`, `length` bytes in all, into a block; its encoded form. None when there is no room.

        Raises OSError when the host has no more memory to give.
        """
        size = block_bytes(length)
        start = self._space.take(size)
        if start is None:
            if not self._grow(size):
                return None
            start = self._space.take(size)
            if start is None:
                return None
        self._generation = generation = self._generation + 1
        self._blocks[generation] = start
        memory, at = self._at(start)
        HEADER.pack_into(memory, at, generation, length)
        at += LINE
        for piece in pieces:
            end = at + len(piece)
            memory[at:end] = piece
            at = end
        return encode_block(start + LINE, length, generation)

    def release(self, generation: int) -> None:
        """The reader has done with that block. One that is not out is none of ours, and changes nothing."""
        start = self._blocks.pop(generation, None)
        if start is not None:
            HEADER.pack_into(*self._at(start), 0, 0)  # who still names it is refused
            self._space.give_back(start)

    def close(self) -> None:
        """Take the name away; the memory goes when the last reader has let go."""
        if self._fd >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1
            self._blocks.clear()
            self._space = Space()
            for segment in self._segments:
                segment.close()

    def _at(self, start: int) -> tuple[mmap.mmap, int]:
        """The segment that holds the block at `start`, and where in it."""
        position = bisect_right(self._starts, start) - 1
        return self._segments[position], start - self._starts[position]

    def _grow(self, size: int) -> bool:
        """Whether there is a new segment, with room for a block of `size` bytes. Raises OSError."""
        left = self._limit_bytes - self.reserved_bytes
        step = min(left, max(_SEGMENT_BYTES, size + LINE + PAGE - 1))
        step -= step % PAGE
        if step < size + LINE:
            return False
        self._reserve(step)
        return True

    def _reserve(self, step: int) -> None:
        start = self._space.size
        os.posix_fallocate(self._fd, start, step)
        self._segments.append(mmap.mmap(self._fd, step, flags=_FLAGS, offset=start))
        self._starts.append(start)
        self._space.grow(step, skip=LINE)


def _make(folder: Path) -> tuple[Path, int]:
    """A new locked file: its path and descriptor. Raises OSError."""
    while True:
        path = folder / f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        try:
            os.fchmod(fd, _MODE)  # whatever the umask took away
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == os.fstat(fd).st_ino:
                return path, fd
        except (BlockingIOError, FileNotFoundError):
            pass  # a reaper looked at it between its birth and its lock: make another
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(fd)
            raise
        os.close(fd)
