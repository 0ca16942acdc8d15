"""One timer for whatever is due first; none when nothing is."""

from collections.abc import Callable
from typing import Protocol

from services.batcher.policy import FOREVER_NS

_ROUNDING_S = 0.0005  # loops round to milliseconds: never ring early, which would mean ringing twice


class Handle(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Handle]


class Alarm:
    """Rings once at the earliest instant it was set for since it last rang."""

    __slots__ = ("_call_later", "_handle", "_ring", "at_ns")

    def __init__(self, call_later: CallLater, ring: Callable[[], None]) -> None:
        self.at_ns = FOREVER_NS
        self._call_later = call_later
        self._ring = ring
        self._handle: Handle | None = None

    def set(self, at_ns: int, now_ns: int) -> None:
        """Ring at `at_ns`, if that is earlier than what it is set for."""
        if at_ns >= self.at_ns:
            return
        self.cancel()
        self.at_ns = at_ns
        self._handle = self._call_later(max(0, at_ns - now_ns) / 1e9 + _ROUNDING_S, self._rung)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.at_ns = FOREVER_NS

    def _rung(self) -> None:
        self._handle = None
        self.at_ns = FOREVER_NS
        self._ring()
