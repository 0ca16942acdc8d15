"""Inputs in shared memory that models have not let go of.

A model may keep what it was given, or a view of it, beyond its batch. Each block is wrapped in an array of its bytes,
which every array made of it refers to; as long as anything does, the block is not given back. So nothing that a model
keeps changes under it, as with inputs that came as bytes.
"""

import sys
from collections import deque

import numpy as np
from numpy.typing import NDArray

from services.chassis.arena import Borrower
from services.chassis.link import Link
from turnout.v1 import link_pb2 as pb

_OUR_REFERENCES = 3  # to a block's bytes while it is looked at: its entry, the loop's name, the argument of getrefcount
_LOOKS = 8  # at kept blocks after each batch

Views = dict[str, tuple[NDArray[np.uint8], int]]  # by input: its bytes, and the generation of its block


def views_of(request: pb.Request, borrower: Borrower) -> Views:
    """The inputs of a batch that lie in shared memory. Raises BlockError."""
    views: Views = {}
    for tensor in request.inputs:
        if tensor.HasField("block"):
            block = tensor.block
            view = borrower.view(block.offset, block.length, block.generation)
            views[tensor.name] = np.frombuffer(view, np.uint8), block.generation
    return views


def generations_of(request: pb.Request) -> list[int]:
    """The blocks of a batch that nobody reads."""
    return [tensor.block.generation for tensor in request.inputs if tensor.HasField("block")]


class Leases:
    """Gives blocks back when nothing refers to them."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[tuple[Link, NDArray[np.uint8], int]] = deque()

    def __len__(self) -> int:
        return len(self._kept)

    def end(self, link: Link, views: Views) -> None:
        """A batch is done: give back its blocks, and those of earlier ones that were kept and are not any more."""
        free = []
        for whole, generation in views.values():
            if sys.getrefcount(whole) > _OUR_REFERENCES:
                self._kept.append((link, whole, generation))
            else:
                free.append(generation)
        if free:
            link.release(free)
        if self._kept:
            self._look_again()

    def forget(self, link: Link) -> None:
        """Its arena is gone; what is kept of it stays as it is."""
        self._kept = deque(entry for entry in self._kept if entry[0] is not link)

    def _look_again(self) -> None:
        for _ in range(min(_LOOKS, len(self._kept))):
            link, whole, generation = entry = self._kept.popleft()
            if sys.getrefcount(whole) > _OUR_REFERENCES:
                self._kept.append(entry)
            else:
                link.release([generation])
