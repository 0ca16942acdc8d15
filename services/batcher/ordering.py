"""`preserve_ordering`: answers leave in the order in which their requests came, though batches run side by side."""

from collections import deque
from collections.abc import Callable

from services.core.known_headers import Data

Send = Callable[..., None]


class Turn:
    """The place of one request in the order of answers. Exactly one of `say` and `skip` is called."""

    __slots__ = ("_order", "parts")

    def __init__(self, order: "Order") -> None:
        self._order = order
        self.parts: tuple[Data, ...] | None = None  # the encoded answer; () = there will be none

    def say(self, *parts: Data) -> None:
        """Answer with an encoded Frame.replies, when it is time."""
        self.parts = parts
        self._order.send_ready()

    def skip(self) -> None:
        """Nobody waits for this answer any more."""
        self.say()


class Order:
    """The answers of one model version to one caller; those that came too early are kept."""

    __slots__ = ("_send", "_turns")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._turns: deque[Turn] = deque()

    def __len__(self) -> int:
        return len(self._turns)

    def join(self) -> Turn:
        """The last place."""
        turn = Turn(self)
        self._turns.append(turn)
        return turn

    def send_ready(self) -> None:
        """Send every answer that none before it is missing for."""
        turns = self._turns
        while turns and turns[0].parts is not None:
            parts = turns.popleft().parts
            if parts:
                self._send(*parts)
