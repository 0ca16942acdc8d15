"""Lines that a worker prints, bounded in length and rate: a model may print gigabytes."""

from collections.abc import Iterator

_LONGEST_LINE_BYTES = 4096
_LINES_A_SECOND = 100


class Lines:
    """Cuts a stream of bytes into lines worth logging. Time is injected: seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_skipping = False  # the rest of a line that was cut
        self._window_s = float("-inf")
        self._in_window = 0
        self._dropped = 0
        self.last = ""  # the last line that was not blank

    def feed(self, chunk: bytes, now_s: float) -> Iterator[str]:
        """The lines that `chunk` completes, at most 100 a second; a notice says how many were left out."""
        self._rest += chunk
        *whole, rest = self._rest.split(b"\n")
        self._rest = rest
        for line in whole:
            yield from self._line(bytes(line), now_s)
            self._is_skipping = False
        if len(self._rest) > _LONGEST_LINE_BYTES:
            yield from self._line(bytes(self._rest), now_s)
            self._rest.clear()
            self._is_skipping = True

    def end(self, now_s: float) -> Iterator[str]:
        """What was printed without a line's end, and the last notice."""
        yield from self._line(bytes(self._rest), now_s)
        self._rest.clear()
        if self._dropped:
            yield self._notice()

    def _line(self, line: bytes, now_s: float) -> Iterator[str]:
        if self._is_skipping or not line.strip():
            return
        text = line[:_LONGEST_LINE_BYTES].decode(errors="replace").rstrip("\r")
        if len(line) > _LONGEST_LINE_BYTES:
            text += " …"
        self.last = text
        if now_s - self._window_s >= 1:
            self._window_s = now_s
            self._in_window = 0
            if self._dropped:
                yield self._notice()
        self._in_window += 1
        if self._in_window > _LINES_A_SECOND:
            self._dropped += 1
        else:
            yield text

    def _notice(self) -> str:
        dropped, self._dropped = self._dropped, 0
        return f"({dropped} lines left out: over {_LINES_A_SECOND} a second)"
