"""Lender and borrower, joined by a link that passes on at once what each says to the other."""

from collections.abc import Iterable
from pathlib import Path

from services.chassis.arena import Borrower, Lender
from services.chassis.arena.arenas import Arenas
from turnout.v1 import link_pb2 as pb
from turnout.v1 import tensor_pb2

MIB = 1 << 20


class Pair:
    """Both ends' links. `borrows`: where the borrower looks for arenas, when that is another folder."""

    def __init__(self, folder: Path, *, limit_bytes: int = 16 * MIB, borrows: Path | None = None) -> None:
        self.arenas = Arenas(limit_bytes, folder)
        self.answers: list[bytes] = []
        self.mute = False
        lender = self.arenas.lender(self)
        assert lender is not None
        self.lender: Lender = lender
        self.borrower = Borrower(self, borrows or folder)

    def offer_arena(self, name: str) -> None:
        if not self.mute:
            self.borrower.offered(name)

    def answer_arena(self, nonce: bytes) -> None:
        self.answers.append(nonce)
        self.lender.proven(nonce)

    def release(self, generations: Iterable[int]) -> None:
        self.lender.released(generations)

    def lend(self, data: bytes) -> bytes | None:
        return self.lender.lend((data,), len(data))

    def prove(self) -> None:
        """Have the borrower see the arena."""
        assert self.lend(b"the first one comes as bytes") is None

    def move(self, request: pb.Request) -> pb.Request:
        """The request with every input's data in a block."""
        for tensor in request.inputs:
            block = self.lend(tensor.data)
            assert block is not None
            tensor.block.CopyFrom(tensor_pb2.Block.FromString(block))
            tensor.ClearField("data")
        return request
