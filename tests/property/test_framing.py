"""gRPC framing: however a stream is cut on its way, the same messages come out."""

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from services.chassis.framing import Framing


def framed(message: bytes) -> bytes:
    return struct.pack(">BI", 0, len(message)) + message


def received(chunks: list[bytes]) -> list[bytes]:
    messages: list[bytes] = []
    framing = Framing(lambda _, message: messages.append(message))
    for chunk in chunks:
        framing.feed(1, chunk)
    return messages


@given(messages=st.lists(st.binary(max_size=20), max_size=6), data=st.data())
def test_messages_survive_any_cut(messages: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(map(framed, messages))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(wire)), max_size=12)) | {0, len(wire)})

    assert received([wire[start:stop] for start, stop in pairwise(cuts)]) == messages


def test_a_stream_of_single_bytes_gives_its_messages() -> None:
    messages = [b"", b"a", b"bc" * 300, b""]
    wire = b"".join(map(framed, messages))

    assert received([wire[at : at + 1] for at in range(len(wire))]) == messages
