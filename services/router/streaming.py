"""Requests that may be answered any number of times, for every protocol that can say so."""

from collections.abc import Mapping
from time import perf_counter_ns
from typing import ClassVar, Protocol

from services.chassis.quick_reply import AnyReply, whole
from services.chassis.streamed import Window
from services.core import stages
from services.core.errors import INTERNAL, OK, UNAVAILABLE, RemoteError, ServingError
from services.router.dispatcher import Dispatcher
from services.router.flight import Flight
from turnout.v1 import link_pb2


class StreamAnswerer(Protocol):
    """As an Answerer, whose `answer` is the only answer. Of a decoupled model it gets any number of parts, then `done`.

    What was said of a part is read by `StreamFlight.read`, or there will be no more of them at some time. `fail` may
    come after parts.
    """

    def answer(self, flight: Flight, reply: AnyReply) -> None: ...
    def part(self, flight: "StreamFlight", reply: link_pb2.Reply) -> None: ...
    def done(self, flight: "StreamFlight") -> None: ...
    def fail(self, flight: Flight, error: ServingError) -> None: ...


class StreamFlight(Flight):
    """A flight whose answerer takes any number of answers; of which kind the model is, it finds out on its way."""

    __slots__ = ("count", "many", "streams", "window")

    takes_many: ClassVar[bool] = True

    def __init__(
        self,
        streams: "StreamDispatcher",
        answerer: StreamAnswerer,
        call_id: int,
        headers: Mapping[str, str | bytes],
        started_ns: int,
    ) -> None:
        super().__init__(streams, answerer, call_id, headers, started_ns)
        self.streams = streams
        self.many = answerer
        self.count = 0  # of parts given to the answerer
        self.window = Window()

    def replied(self, reply: AnyReply) -> None:
        self.streams.streamed(self, reply)

    def read(self, cost: int) -> None:
        """A part of that cost was read: there is room for another."""
        given = self.window.read(cost)
        if given and self.replica is not None and not self.is_done:
            self.replica.credit(self.remote_id, given)


class StreamDispatcher(Dispatcher):
    """A Dispatcher that owns streamed flights too. Once a part was given out, nothing is tried again."""

    def streamed(self, flight: StreamFlight, reply: AnyReply) -> None:
        """One reply of a replica to a streamed flight, in order."""
        if not flight.target.is_decoupled:
            self.replied(flight, reply)
            return
        if flight.is_done:
            return
        said = whole(reply)
        if not said.final:
            self._part(flight, said)
        elif said.code == OK:
            self._finished(flight, said)
        elif not flight.count:
            self._failed_reply(flight, said)
        else:
            code = INTERNAL if said.code == UNAVAILABLE else said.code  # to ask again would give the same parts again
            self.fail(flight, RemoteError(code, said.message))

    def _part(self, flight: StreamFlight, reply: link_pb2.Reply) -> None:
        flight.count += 1
        flight.mark_ns = perf_counter_ns()
        answer: AnyReply | None = reply
        if flight.inference.extras is not None:
            answer = self._extensions.give(flight, reply, self._broken)
        if answer is not None:
            flight.many.part(flight, whole(answer))

    def _broken(self, flight: Flight, error: ServingError) -> None:
        """A part is not what was asked for: its replica need not go on."""
        self._withdraw(flight)
        self.fail(flight, error)

    def _finished(self, flight: StreamFlight, reply: link_pb2.Reply) -> None:
        now = flight.mark_ns = perf_counter_ns()
        target = flight.target
        self._end(flight)
        flight.many.done(flight)
        remote = reply.stages_ns[:] if len(reply.stages_ns) == len(stages.REMOTE) else [0] * len(stages.REMOTE)
        end = perf_counter_ns()
        before = (flight.parse_ns, flight.auth_ns, flight.route_ns, flight.features_ns)
        link_ns = now - flight.sent_ns - reply.total_ns
        sample = (*before, link_ns, *remote, end - now, end - flight.started_ns)
        self._metrics.answered(target, flight.arm, sample)
        self._retries.answered += 1
        if self._keeper is not None:
            self._keeper.finished(flight, OK, "", sample)
