"""What a worker's supervisor makes of what it is told."""

import asyncio

import pytest

from services.runtime import report
from turnout.v1 import runtime_pb2 as pb


async def told(*pieces: bytes) -> pb.Instance | None:
    reader = asyncio.StreamReader()
    for piece in pieces:
        reader.feed_data(piece)
    reader.feed_eof()
    return await report.receive(reader)


async def test_a_report_is_read() -> None:
    payload = pb.Instance(id="w", reason="fine").SerializeToString()

    assert await told(len(payload).to_bytes(4, "little"), payload) == pb.Instance(id="w", reason="fine")


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"\1", b"\xff" * 4096, b"\4\0\0\0\xff\xff\xff\xff", b"\4\0\0\0\1", b"\0\0\x10\0" + b"\0" * (1 << 20)],
    ids=["nothing", "cut length", "huge length", "no message", "cut message", "large message"],
)  # fmt: skip
async def test_rubbish_is_no_report(rubbish: bytes) -> None:
    assert await told(rubbish) is None
