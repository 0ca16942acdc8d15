"""Content codings: what is taken and given, and that nothing grows past its bound."""

import gzip
import zlib
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.http_server.encoding import accepted, compress, inflate, offered
from services.chassis.http_server.head import too_large
from services.core.errors import InvalidRequestError, TooLargeError

LIMIT = 1 << 20


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


@given(st.binary(max_size=5000), st.integers(1, 400))
def test_what_was_compressed_is_what_it_was(data: bytes, times: int) -> None:
    data *= times
    forms = [("gzip", compress("gzip", data)), ("deflate", compress("deflate", data)), ("deflate", raw_deflate(data))]
    forms.append(("gzip", gzip.compress(data[:7]) + gzip.compress(data[7:])))

    for coding, body in forms:
        if len(data) <= LIMIT:
            assert inflate(coding, body, LIMIT, too_large) == data
        else:
            with pytest.raises(TooLargeError, match="larger than 1048576 bytes"):
                inflate(coding, body, LIMIT, too_large)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b""),
        ("gzip", b"no gzip at all"),
        ("gzip", gzip.compress(b"cut off")[:-3]),
        ("gzip", gzip.compress(b"more behind") + b"more"),
        ("gzip", gzip.compress(b"") * 65),
        ("gzip", zlib.compress(b"another one")),
        ("deflate", zlib.compress(b"more behind") + b"more"),
        ("deflate", b"\xff\xff\xff"),
    ],
    ids=range(8),  # gzip writes the time into what it makes
)
def test_what_is_not_compressed_so_is_refused(coding: str, body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match=f"Content-Encoding '{coding}'"):
        inflate(coding, body, LIMIT, too_large)


def test_a_body_that_says_itself_that_it_is_too_large_is_not_inflated() -> None:
    bomb = gzip.compress(bytes(64 << 20), 1)
    begun = perf_counter()

    for _ in range(1000):
        with pytest.raises(TooLargeError):
            inflate("gzip", bomb, LIMIT, too_large)

    assert perf_counter() - begun < 5  # inflating it once takes a twentieth of a second


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("", ""),
        ("gzip", "gzip"),
        ("gzip, deflate, br", "gzip"),
        ("deflate", "deflate"),
        ("gzip;q=0", ""),
        ("gzip;q=0.2, deflate;q=0.9", "deflate"),
        ("gzip;q=x", ""),
        ("br, *", ""),
        (" GZIP ; q=1.0 ", "gzip"),
    ],
)
def test_the_coding_is_one_that_the_caller_accepts(header: str, coding: str) -> None:
    assert accepted(header) == coding


def test_a_coding_that_is_not_ours_is_named() -> None:
    assert [offered(text) for text in ("", "identity", "GZip", "x-gzip", "deflate")] == [
        "",
        "",
        "gzip",
        "gzip",
        "deflate",
    ]
    with pytest.raises(InvalidRequestError, match="'br'; it takes gzip or deflate"):
        offered("br")
