"""Bodies in chunks, read strictly: two readers of one request must not disagree about where it ends."""

import re
from collections.abc import Callable

from services.chassis.http_server.head import HttpFaultError
from services.core.errors import ServingError

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;[^\r\n\x00]*)?")
_MOST_LINE_BYTES = 1024
_MOST_TRAILER_BYTES = 8192
_SIZES, _CONTENT, _AFTER, _TRAILER = range(4)


class ChunkedBody:
    """Gathers `content` from what `feed` is given."""

    def __init__(self, limit_bytes: int, too_large: Callable[[int], ServingError]) -> None:
        self.content = bytearray()
        self.is_whole = False
        self._limit_bytes = limit_bytes
        self._too_large = too_large
        self._state = _SIZES
        self._line = b""  # begun
        self._left = 0  # of the chunk that is being read
        self._trailer_bytes = 0

    def feed(self, data: bytes) -> bytes:
        """Take what belongs to the body; what follows it is given back. Raises ServingError."""
        at, end = 0, len(data)
        while at < end and not self.is_whole:
            if self._state == _CONTENT:
                taken = data[at : at + self._left]
                self.content += taken
                self._left -= len(taken)
                at += len(taken)
                if not self._left:
                    self._state = _AFTER
                continue
            stop = data.find(b"\n", at)
            self._line += data[at : stop + 1 or end]
            if len(self._line) > _MOST_LINE_BYTES:
                raise HttpFaultError(f"a line between chunks has over {_MOST_LINE_BYTES} bytes")
            at = stop + 1 or end
            if stop >= 0:
                line, self._line = self._line, b""
                self._take(line)
        return data[at:]

    def _take(self, line: bytes) -> None:
        """One line that is not content, its line end included."""
        if not line.endswith(b"\r\n"):
            raise HttpFaultError("a line between chunks does not end in CR LF")
        line = line[:-2]
        if self._state == _AFTER:
            if line:
                raise HttpFaultError("a chunk is longer than it says")
            self._state = _SIZES
        elif self._state == _TRAILER:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > _MOST_TRAILER_BYTES:
                raise HttpFaultError(f"over {_MOST_TRAILER_BYTES} bytes of trailers", 431)
            self.is_whole = not line
        else:
            self._begin(line)

    def _begin(self, line: bytes) -> None:
        match = _SIZE.fullmatch(line)
        if match is None:
            raise HttpFaultError(f"{line[:40].decode(errors='replace')!r} is no size of a chunk")
        self._left = int(match[1], 16)
        if len(self.content) + self._left > self._limit_bytes:
            raise self._too_large(self._limit_bytes)
        self._state = _CONTENT if self._left else _TRAILER
