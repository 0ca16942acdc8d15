"""Messages one after the other in a stream."""

import gzip
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.delimited import BadStreamError, DelimitedReader, delimited

MESSAGES = st.lists(st.binary(max_size=300), max_size=8)


def read(data: bytes, most: int = 1000) -> tuple[list[bytes], bool]:
    reader = DelimitedReader(BytesIO(data), most)
    return list(reader), reader.is_cut


@given(messages=MESSAGES)
def test_what_was_written_is_read(messages: list[bytes]) -> None:
    assert read(b"".join(map(delimited, messages))) == (messages, False)


@given(messages=MESSAGES, data=st.data())
def test_a_stream_that_is_cut_gives_what_is_whole_and_says_so(messages: list[bytes], data: st.DataObject) -> None:
    parts = list(map(delimited, messages))
    stream = b"".join(parts)
    at = data.draw(st.integers(0, len(stream)))
    ends = [sum(map(len, parts[:count])) for count in range(len(parts) + 1)]
    found, is_cut = read(stream[:at])

    assert found == messages[: max(count for count, end in enumerate(ends) if end <= at)]
    assert is_cut == (at not in ends)


@given(data=st.binary(max_size=200))
def test_rubbish_ends_in_messages_or_an_error_never_in_more_than_there_is(data: bytes) -> None:
    try:
        found, _ = read(data)
    except BadStreamError:
        return

    assert sum(map(len, found)) <= len(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x01a" + b"\xff\xff\xff\xff\x7f", "message 2 at byte 2 says it has 34359738367 bytes; at most 1000"),
        (b"\xe9\x07", "message 1 at byte 0 says it has 1001 bytes; at most 1000"),
        (b"\xff" * 6, "message 1 at byte 0 has no length"),
    ],
)
def test_a_length_that_cannot_be_is_refused_with_its_place(data: bytes, reason: str) -> None:
    with pytest.raises(BadStreamError, match=reason):
        read(data)


def test_a_compressed_stream_that_is_cut_gives_what_is_whole() -> None:
    messages = [bytes([number]) * 50 for number in range(50)]
    packed = gzip.compress(b"".join(map(delimited, messages)))
    with gzip.open(BytesIO(packed[:-9])) as stream:
        reader = DelimitedReader(stream)
        found = list(reader)

    assert found == messages[: len(found)]
    assert reader.is_cut


def test_a_compressed_stream_that_is_broken_is_refused() -> None:
    packed = bytearray(gzip.compress(delimited(bytes(range(256)) * 3)))
    packed[30] ^= 0xFF
    with (
        gzip.open(BytesIO(packed)) as stream,
        pytest.raises(BadStreamError, match="cannot be read"),
    ):
        list(DelimitedReader(stream))
