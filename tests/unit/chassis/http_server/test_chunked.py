"""Bodies in chunks: the same however they are cut, and strict."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.http_server.chunked import ChunkedBody
from services.chassis.http_server.head import HttpFaultError, too_large
from services.core.errors import ServingError, TooLargeError

LIMIT = 1000


def encoded(parts: list[bytes]) -> bytes:
    return b"".join(b"%X;a=b\r\n%b\r\n" % (len(part), part) for part in parts if part) + b"0\r\nx: y\r\n\r\n"


@given(st.lists(st.binary(max_size=40), max_size=8), st.binary(max_size=20), st.integers(1, 50))
def test_a_body_is_the_same_however_it_is_cut(parts: list[bytes], behind: bytes, step: int) -> None:
    data = encoded(parts) + behind
    body, left = ChunkedBody(LIMIT, too_large), b""

    for at in range(0, len(data), step):
        piece = data[at : at + step]
        left += piece if body.is_whole else body.feed(piece)

    assert (body.is_whole, bytes(body.content), left) == (True, b"".join(parts), behind)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"x\r\n", "'x' is no size of a chunk"),
        (b"-1\r\n", "no size"),
        (b"0x3\r\n", "no size"),
        (b"\r\n", "no size"),
        (b"3\nabc", "does not end in CR LF"),
        (b"3\r\nabcd\r\n", "longer than it says"),
        (b"3" * 2000, "over 1024 bytes"),
        (b"0\r\n" + b"a: b\r\n" * 3000, "of trailers"),
        (b"fffffffffffff\r\n", "no size"),
    ],
)
def test_chunks_that_are_none_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(HttpFaultError, match=says):
        ChunkedBody(LIMIT, too_large).feed(data)


@pytest.mark.parametrize("data", [b"3e9\r\n", b"3e8\r\n" + bytes(1000) + b"\r\n1\r\n", b"ffffffffffff\r\n"])
def test_a_body_over_the_limit_is_refused_when_it_says_so(data: bytes) -> None:
    body = ChunkedBody(LIMIT, too_large)

    with pytest.raises(TooLargeError):
        body.feed(data)


@given(st.binary(max_size=200))
def test_whatever_comes_it_is_a_body_or_a_fault(data: bytes) -> None:
    body = ChunkedBody(LIMIT, too_large)
    with suppress(ServingError):
        left = body.feed(data)
        assert body.is_whole or not left
