"""The receiving end: the peer's arena opened when it is offered, blocks read where they lie, each given back once."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import structlog

from services.chassis.arena.layout import FOLDER, BlockError
from services.chassis.arena.mapped import MappedArena
from services.chassis.arena.reaper import unlink_if_orphaned

_ORPHANED_S = 1.0  # after its link a killed owner's lock is gone too

log = structlog.get_logger()


class BorrowingLink(Protocol):
    """What a borrower needs of its link."""

    def answer_arena(self, nonce: bytes) -> None: ...
    def release(self, generations: Iterable[int]) -> None: ...


class Borrower:
    """One link's. `lent`: the generations of the blocks that each request in here holds, by its id."""

    def __init__(self, link: BorrowingLink, folder: Path = FOLDER) -> None:
        self.lent: dict[int, list[int]] = {}
        self._link = link
        self._folder = folder
        self._arena: MappedArena | None = None

    def offered(self, name: str) -> None:
        """Open the arena that the peer offers, and prove it; one on a link is all."""
        if self._arena is not None:
            return
        try:
            self._arena = MappedArena(self._folder, name)
        except (OSError, ValueError) as error:
            log.info("arena_not_opened", reason=str(error))
            self._link.answer_arena(b"")
        else:
            self._link.answer_arena(self._arena.nonce)

    @property
    def is_open(self) -> bool:
        """Whether blocks may come."""
        return self._arena is not None

    def view(self, offset: int, length: int, generation: int) -> memoryview:
        """The data of a block; whoever asks sees to its release. Raises BlockError."""
        if self._arena is None:
            raise BlockError("a block of shared memory, and no arena was opened on this link")
        return self._arena.view(offset, length, generation)

    def read(self, request_id: int, offset: int, length: int, generation: int) -> memoryview:
        """The data of a block, which request `request_id` holds until `give_back`. Raises BlockError."""
        data = self.view(offset, length, generation)
        self.lent.setdefault(request_id, []).append(generation)
        return data

    def give_back(self, request_id: int) -> None:
        """That request is done with its blocks."""
        generations = self.lent.pop(request_id, None)
        if generations is not None:
            self._link.release(generations)

    def close(self) -> None:
        """The link is over. A peer that was killed could not take the arena's name away."""
        if self._arena is not None:
            path = self._arena.path
            self._arena.close()
            self._arena = None
            self.lent.clear()
            asyncio.get_running_loop().call_later(_ORPHANED_S, unlink_if_orphaned, path)
