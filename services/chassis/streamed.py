"""Streamed answers on links: what each costs of the reader's credit, and their order."""

from turnout.v1 import link_pb2 as pb

WINDOW_BYTES = 256 << 10  # the credit that a reader gives at first, and most of what may wait for it
_LEAST_COST = 4096  # of an answer, so that small ones are bounded by number


def cost_of(reply: pb.Reply) -> int:
    """What an answer takes of the credit."""
    return max(_LEAST_COST, sum([len(output.data) for output in reply.outputs[:]]))


class InOrder:
    """Replies to one request, in the order of `seq`: large ones take another stream, and may come late."""

    __slots__ = ("_early", "count")

    def __init__(self) -> None:
        self.count = 0  # answers given out
        self._early: dict[int, pb.Reply] = {}

    def take(self, reply: pb.Reply) -> list[pb.Reply]:
        """Those that are next, now that `reply` has come; an end that does not count those before it is one at once."""
        if reply.seq < self.count:
            return [reply] if reply.final else []
        if reply.seq > self.count:
            self._early[reply.seq] = reply
            return []
        ready = [reply]
        if not reply.final:
            self.count += 1
            while self._early and not ready[-1].final:
                following = self._early.pop(self.count, None)
                if following is None:
                    break
                ready.append(following)
                self.count += not following.final
        return ready


class Window:
    """What a reader gives back: not each answer at once, which would cost a message each."""

    __slots__ = ("_read",)

    def __init__(self) -> None:
        self._read = 0

    def read(self, cost: int) -> int:
        """An answer was read: the credit to give now, which nearly always is none."""
        self._read += cost
        if self._read < WINDOW_BYTES // 4:
            return 0
        given, self._read = self._read, 0
        return given
