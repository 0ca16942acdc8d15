"""Large tensors between two processes on one host: written once into shared memory, read where they lie.

The sending end of a link lends blocks of an arena of its own, the receiving end gives each back when it is done with
it. Everything else about the link stays as it is: where there is no arena, the same tensors travel as bytes
(docs/adr/0013). What a process counts of them is in arenas, apart: workers have no metrics.
"""

from services.chassis.arena.borrower import Borrower
from services.chassis.arena.layout import BLOCK_BYTES, LEAST_BYTES, BlockError, Data, decode_block, encode_block
from services.chassis.arena.lender import Lender
from services.chassis.arena.reaper import reap

__all__ = [
    "BLOCK_BYTES",
    "LEAST_BYTES",
    "BlockError",
    "Borrower",
    "Data",
    "Lender",
    "decode_block",
    "encode_block",
    "reap",
]
