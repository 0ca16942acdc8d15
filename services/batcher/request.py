"""One request while it is in the batcher."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from services.batcher.ordering import Order, Turn
from services.batcher.policy import FOREVER_NS
from services.chassis.arena import Borrower
from services.chassis.link import Link
from services.core.known_headers import Data

if TYPE_CHECKING:
    from services.batcher.buckets import Bucket
    from services.batcher.lobby import Lobby

WAITING, LAUNCHED, HELD, DONE = 0, 1, 2, 3  # in the queue, in a batch, kept for a search or as a suspect, answered
MAX_TRIES = 2


class Caller:
    """One peer's link and its requests in here, by id.

    `lent`: by id too, the blocks of shared memory that hold their inputs; nearly always empty where tensors are small.
    """

    __slots__ = ("_orders", "borrower", "lent", "link", "pending")

    def __init__(self, link: Link, borrower: Borrower | None = None) -> None:
        self.link = link
        self.borrower = borrower
        self.lent = borrower.lent if borrower else {}
        self.pending: dict[int, Pending] = {}
        self._orders: dict[tuple[str, str], Order] = {}  # by model and version

    def order(self, name: tuple[str, str]) -> Order:
        """The order in which a model version answers it."""
        order = self._orders.get(name)
        if order is None:
            order = self._orders[name] = Order(self.link.send_encoded)
        return order

    def give_back(self, number: int) -> None:
        """A request is done with its inputs: its answer is written, or there will be none."""
        if self.borrower is not None:
            self.borrower.give_back(number)


class Pending:
    """A request, or one part of a request that was cut (`whole` is the request then)."""

    __slots__ = (
        "arrival_ns",
        "bucket",
        "caller",
        "cost",
        "deadline_ns",
        "expires_ns",
        "home",
        "id",
        "inputs",
        "length",
        "level",
        "parts",
        "rank",
        "request_id",
        "retries",
        "rows",
        "size",
        "state",
        "tries",
        "turn",
        "wanted",
        "whole",
    )

    def __init__(
        self, home: "Lobby", caller: Caller, number: int, rows: int, inputs: list[Data], size: int, arrival_ns: int
    ) -> None:
        self.home = home
        self.caller = caller
        self.id = number
        self.rows = rows
        self.cost = rows or 1  # rows it counts for in the queue: nothing is free
        self.inputs = inputs  # bytes of each input, in the signature's order
        self.size = size  # bytes in its batch
        self.length = 0  # of its rows, where they are filled up
        self.arrival_ns = arrival_ns
        self.deadline_ns = FOREVER_NS
        self.expires_ns = FOREVER_NS  # deadline or queue timeout, whichever is earlier
        self.level = 0  # priority: 1 = the highest; 0 = the model has none
        self.rank = 0  # order in the queue, the lowest first
        self.state = WAITING
        self.tries = 0  # executions begun, by anyone
        self.retries = 0  # launches beyond the first
        self.wanted: tuple[str, ...] = ()
        self.request_id = ""
        self.whole: Pending | None = None
        self.parts: Parts | None = None
        self.turn: Turn | None = None  # when answers leave in order of arrival
        self.bucket: Bucket

    def part(self, rows: int, inputs: list[Data]) -> "Pending":
        """One part of this request; it shares its fate."""
        part = Pending(self.home, self.caller, self.id, rows, inputs, sum(map(len, inputs)), self.arrival_ns)
        part.deadline_ns, part.expires_ns = self.deadline_ns, self.expires_ns
        part.level, part.rank = self.level, self.rank
        part.tries, part.request_id, part.whole = self.tries, self.request_id, self
        part.wanted = self.wanted
        return part


class Parts:
    """The parts of a cut request: the output bytes of each and of all, and how many are still to come."""

    __slots__ = ("left", "members", "outputs", "size")

    def __init__(self, members: list[Pending]) -> None:
        self.members = members
        self.left = len(members)
        self.size = 0
        self.outputs: list[list[Data]] = [[] for _ in members]


def has_begun(parts: Iterable[Pending]) -> bool:
    """Whether a part of a request that was cut ran, or runs."""
    return any(part.state != WAITING for part in parts)


def is_done(pending: Pending) -> bool:
    return pending.state == DONE
