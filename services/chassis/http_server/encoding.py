"""Content codings: bodies inflated within bounds, answers deflated for those who ask."""

import zlib
from collections.abc import Callable

from services.core.errors import InvalidRequestError, ServingError

GZIP, DEFLATE = "gzip", "deflate"
LEAST_BYTES = 1024  # of an answer that is worth compressing
_LEVEL = 1  # tensors hardly shrink more, whatever is spent on them
_FEED_BYTES = 64 << 10
_TAKE_BYTES = 1 << 20
_MOST_MEMBERS = 64  # of a gzip file
_TRAILER_BYTES = 4  # at the end of a gzip file: how large it was
_MOST_RATIO = 1032  # of what deflate makes smaller
_WINDOW, _AS_GZIP = 15, 16
Data = bytes | bytearray | memoryview


def offered(content_encoding: str) -> str:
    """GZIP, DEFLATE or "" for a Content-Encoding. Raises InvalidRequestError."""
    coding = content_encoding.strip().lower()
    if coding in ("", "identity"):
        return ""
    if coding in (GZIP, "x-gzip"):
        return GZIP
    if coding == DEFLATE:
        return DEFLATE
    raise InvalidRequestError(
        f"the body cannot be read with Content-Encoding {content_encoding[:40]!r}; it takes gzip or deflate"
    )


def accepted(accept_encoding: str) -> str:
    """The coding that an Accept-Encoding likes best of ours; "" = none."""
    best, most = "", 0.0
    for part in accept_encoding.lower().split(","):
        name, _, parameters = part.partition(";")
        coding = name.strip()
        if coding in (GZIP, DEFLATE):
            quality = _quality(parameters)
            if quality > most:
                best, most = coding, quality
    return best


def _quality(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def compress(coding: str, body: Data) -> bytes:
    window = _WINDOW + _AS_GZIP if coding == GZIP else _WINDOW
    return zlib.compress(body, _LEVEL, window)


def inflate(coding: str, body: Data, limit_bytes: int, too_large: Callable[[int], ServingError]) -> bytes:
    """The body, inflated. Raises InvalidRequestError, or what `too_large` makes of the limit.

    Never holds more than the limit and a little: what grows past it is dropped while it grows.
    """
    view = memoryview(body)
    if coding == GZIP and limit_bytes < int.from_bytes(view[-_TRAILER_BYTES:], "little") <= len(view) * _MOST_RATIO:
        raise too_large(limit_bytes)  # so it says itself, and nothing needs to be tried
    parts: list[bytes] = []
    size = members = 0
    try:
        while members == 0 or view:
            members += 1
            if members > (_MOST_MEMBERS if coding == GZIP else 1):
                raise InvalidRequestError(f"the body goes on behind what Content-Encoding {coding!r} says it is")
            size, used = _member(_window(coding, view), view, parts, size, limit_bytes)
            if size > limit_bytes:
                raise too_large(limit_bytes)
            view = view[used:]
    except zlib.error:
        raise InvalidRequestError(f"the body cannot be read with Content-Encoding {coding!r}") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _window(coding: str, view: memoryview) -> int:
    """The window bits for zlib; of deflate some send the bare stream, without zlib's two bytes before it."""
    if coding == GZIP:
        return _WINDOW + _AS_GZIP
    is_wrapped = len(view) > 1 and view[0] & 15 == 8 and (view[0] << 8 | view[1]) % 31 == 0
    return _WINDOW if is_wrapped else -_WINDOW


def _member(window: int, view: memoryview, parts: list[bytes], size: int, limit_bytes: int) -> tuple[int, int]:
    """Inflate one stream into `parts`: the size of them all, and how many bytes of `view` it took."""
    stream = zlib.decompressobj(window)
    fed = 0
    while not stream.eof:
        data: Data = view[fed : fed + _FEED_BYTES]
        if not len(data):
            raise zlib.error("cut off")
        fed += len(data)
        while len(data) and not stream.eof:
            part = stream.decompress(data, _TAKE_BYTES)
            size += len(part)
            if size > limit_bytes:
                parts.clear()
                return size, fed
            if part:
                parts.append(part)
            data = stream.unconsumed_tail
    return size, fed - len(stream.unused_data)
