"""How an arena is laid out in its file, and how a block is named on a link.

The first line of 64 bytes holds magic and nonce. The file grows in segments, whose first line belongs to no block, so
that no block lies in two. A block is a line, of which the first 16 bytes are its header, then its data; so data begins
where vector instructions like it to.
"""

import struct
from pathlib import Path

FOLDER = Path("/dev/shm")  # noqa: S108 - where Linux keeps shared memory by name
PREFIX = "turnout-"
MAGIC = b"turnout1"
NONCE_BYTES = 16
PAGE = 4096  # bytes; segments are whole pages
LINE = 64  # bytes; every block begins at a multiple
HEADER = struct.Struct("<QQ")  # generation, length of the data
LEAST_BYTES = 16 << 10  # of a tensor that goes by block; below, the copies saved are worth no more than the block costs

Data = bytes | memoryview

# turnout.v1.Block: offset, length, generation; tag and fixed64 each.
_BLOCK = struct.Struct("<BQBQBQ")
_OFFSET, _LENGTH, _GENERATION = 1 << 3 | 1, 2 << 3 | 1, 3 << 3 | 1
BLOCK_BYTES = _BLOCK.size


class BlockError(Exception):
    """A block that is not what its sender says; the message says how it differs."""


def encode_block(offset: int, length: int, generation: int) -> bytes:
    """A turnout.v1.Block, without tag and length."""
    return _BLOCK.pack(_OFFSET, offset, _LENGTH, length, _GENERATION, generation)


def decode_block(encoded: Data) -> tuple[int, int, int]:
    """Offset, length and generation of what `encode_block` wrote. Raises BlockError."""
    if len(encoded) == BLOCK_BYTES:
        tag, offset, length_tag, length, generation_tag, generation = _BLOCK.unpack(encoded)
        if (tag, length_tag, generation_tag) == (_OFFSET, _LENGTH, _GENERATION):
            return offset, length, generation
    raise BlockError(f"{len(encoded)} bytes that do not name a block")


def block_bytes(length: int) -> int:
    """What a block of `length` bytes of data takes in the arena."""
    return LINE + (length + LINE - 1) // LINE * LINE
