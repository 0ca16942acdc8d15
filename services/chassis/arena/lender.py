"""The sending end: an arena made when the first large tensor wants to go, used once the peer has proven to see it."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import structlog

from services.chassis.arena.layout import Data
from services.chassis.arena.owner import Arena

_PAUSE_S = 1.0  # after the host had no memory left

log = structlog.get_logger()


class LendingLink(Protocol):
    """What a lender needs of its link."""

    def offer_arena(self, name: str) -> None: ...


class Counts:
    """Large tensors: lent, and sent as bytes because there was no room or the peer had not proven anything."""

    __slots__ = ("full", "lent", "unproven")

    def __init__(self) -> None:
        self.lent = 0
        self.full = 0
        self.unproven = 0


class Lender:
    """One link's. It never raises for want of memory: what it cannot lend, the caller sends as bytes."""

    def __init__(
        self,
        link: LendingLink,
        folder: Path,
        limit_bytes: int,
        counts: Counts,
        on_close: Callable[["Lender"], object],
    ) -> None:
        self._link = link
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._counts = counts
        self._on_close = on_close
        self._arena: Arena | None = None
        self._is_proven = False
        self._is_over = False  # closed, or the peer cannot see the arena
        self._full_until_s = 0.0

    @property
    def blocks(self) -> int:
        arena = self._arena  # once: it may go while another thread asks
        return arena.blocks if arena else 0

    @property
    def reserved_bytes(self) -> int:
        arena = self._arena
        return arena.reserved_bytes if arena else 0

    def lend(self, pieces: Sequence[Data], length: int) -> bytes | None:
        """Write `pieces`, `length` bytes in all, into a block; the encoded Block. None: send them as bytes."""
        arena = self._arena
        if arena is None or not self._is_proven:
            self._counts.unproven += 1
            if arena is None and not self._is_over:
                self._offer()
            return None
        try:
            block = arena.put(pieces, length) if time.monotonic() >= self._full_until_s else None
        except OSError as error:
            self._full_until_s = time.monotonic() + _PAUSE_S
            log.warning("shared_memory_full", reserved_bytes=arena.reserved_bytes, reason=str(error))
            block = None
        if block is None:
            self._counts.full += 1
        else:
            self._counts.lent += 1
        return block

    def proven(self, nonce: bytes) -> None:
        """The peer's answer to the offer."""
        if self._arena is None:
            return
        if nonce == self._arena.nonce:
            self._is_proven = True
            return
        log.info("arena_refused", reason="the peer does not see it: tensors travel as bytes")
        self._give_up()

    def released(self, generations: Iterable[int]) -> None:
        """The peer has done with these blocks."""
        if self._arena is not None:
            for generation in generations:
                self._arena.release(generation)

    def close(self) -> None:
        """The link is over, and the arena with it."""
        self._give_up()
        self._on_close(self)

    def _offer(self) -> None:
        try:
            self._arena = Arena(self._folder, self._limit_bytes)
        except OSError as error:
            self._is_over = True
            log.warning("no_shared_memory", reason=str(error))
        else:
            self._link.offer_arena(self._arena.path.name)

    def _give_up(self) -> None:
        self._is_over, self._is_proven = True, False
        if self._arena is not None:
            self._arena.close()
            self._arena = None
