"""Where the requests of one model version are let in, and where each leaves with exactly one outcome."""

from collections.abc import Callable, Iterable

from services.batcher import tally as counted
from services.batcher.alarm import Alarm
from services.batcher.collate import cut
from services.batcher.door import Door, Refusal
from services.batcher.intake import Intake
from services.batcher.policy import AGEING_NS, FOREVER_NS, SHADOW_LEVEL, rank_of
from services.batcher.quarantine import Quarantine, why_refused
from services.batcher.queue import Queue
from services.batcher.quick_request import AnyRequest
from services.batcher.replies import error_reply, send_error
from services.batcher.request import DONE, HELD, LAUNCHED, WAITING, Caller, Pending, has_begun
from services.batcher.service_time import ServiceTime
from services.batcher.tally import Tally
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, INVALID_ARGUMENT, UNAVAILABLE, InvalidRequestError
from services.core.names import ModelVersion
from turnout.v1 import link_pb2 as pb

_SCAN_SHARE = 10  # looks for expired requests take at most one part in so many of the time


class Lobby:
    """Requests on their way in, and out by any way but a good answer."""

    __slots__ = (
        "_alarm",
        "_arrival_ns",
        "_clock",
        "_expiry_ns",
        "digest",
        "door",
        "gap_ns",
        "intake",
        "name",
        "quarantine",
        "queue",
        "quiet",
        "service",
        "tally",
    )

    def __init__(
        self,
        name: ModelVersion,
        intake: Intake,
        queue: Queue,
        service: ServiceTime,
        door: Door,
        alarm: Alarm,
        clock: Callable[[], int],
    ) -> None:
        self.name = name
        self.intake = intake
        self.queue = queue
        self.service = service
        self.door = door
        self.digest = ""  # of the artifact served now
        self.tally = Tally()
        self.quarantine = Quarantine()
        self.quiet: Callable[[], None] = lambda: None  # called when somebody left and the door is closed
        self.gap_ns = 0.0  # usual time between arrivals, kept only when the policy has a delay
        self._alarm = alarm
        self._clock = clock
        self._arrival_ns = 0
        self._expiry_ns = FOREVER_NS  # nobody in here expires before

    def offer(self, caller: Caller, request: AnyRequest, number: int, now_ns: int) -> None:
        """Queue a request, or answer at once why not."""
        queue, door, rows, shadow = self.queue, self.door, request.rows, request.shadow
        policy = door.policy
        level = SHADOW_LEVEL if shadow else policy.level_of(request.priority) if policy.levels else 0
        door.offered_rows += rows
        if door.closed or rows > door.plain_rows or queue.rows + rows >= door.full_rows:
            refusal = door.before_reading(rows, level, now_ns)
            if refusal is not None:
                self._refuse(caller, number, refusal)
                return
        try:
            intake = self.intake.named(request.signature_name)
            inputs, inner, size = intake.read(request, rows)
            pending = Pending(self, caller, number, rows, inputs, size, now_ns)
            if intake.padder is not None:
                inner = intake.padder.settle(pending, inner)
        except InvalidRequestError as error:
            self._refuse(caller, number, Refusal(INVALID_ARGUMENT, str(error), counted.INVALID))
            return
        pending.level = level
        refusal = self._judge(pending, request, now_ns)
        if refusal is not None:
            self._refuse(caller, number, refusal)
            return
        pending.bucket = queue.bucket(inner, intake, self.service, shadow=shadow)
        if queue.levels:
            self._make_room(pending)
        caller.pending[number] = pending
        if policy.preserve_ordering:
            pending.turn = caller.order(self.name).join()
        if rows > door.plain_rows:
            self._cut(pending, now_ns)
        else:
            queue.put(pending)
        if pending.expires_ns < self._expiry_ns or policy.delay_ns:
            self._note_times(pending, now_ns)

    def put_back(self, pending: Pending) -> None:
        """A worker did not begin with it: it waits again, and may do so no longer than before."""
        self.queue.put_back(pending, self.intake)
        if pending.expires_ns < self._expiry_ns:
            self._expiry_ns = pending.expires_ns
            self._alarm.set(pending.expires_ns, self._clock())

    def _note_times(self, pending: Pending, now_ns: int) -> None:
        """Keep in mind when the first one expires, and how often they come."""
        if pending.expires_ns < self._expiry_ns:
            self._expiry_ns = pending.expires_ns
            self._alarm.set(pending.expires_ns, now_ns)
        if self.door.policy.delay_ns:
            self.gap_ns += (now_ns - self._arrival_ns - self.gap_ns) * 0.1 if self._arrival_ns else 0
            self._arrival_ns = now_ns

    def _judge(self, pending: Pending, request: AnyRequest, now_ns: int) -> Refusal | None:
        """Read what is left of `request` into `pending`; the refusal that follows from it."""
        door, level = self.door, pending.level
        refusal = None
        if pending.size + self.queue.size > door.plain_bytes:
            refusal = door.by_size(pending.size, level, now_ns)
        pending.request_id = request.request_id
        if not self.intake.one_output:
            pending.wanted = tuple(request.outputs)
        tries, digest = request.tries, request.digest
        if tries or digest:
            pending.tries = tries
            refusal = refusal or door.by_rest(tries, digest, self.digest)
        left_ns = request.deadline_us * 1000
        if left_ns:
            pending.deadline_ns = pending.expires_ns = now_ns + left_ns
        if level:
            pending.rank = rank_of(level, now_ns, pending.deadline_ns)
        else:
            pending.rank = now_ns + (left_ns if 0 < left_ns < AGEING_NS else AGEING_NS)
        if left_ns and left_ns < door.horizon_ns:
            refusal = refusal or door.by_deadline(pending, now_ns)
        asked_us = request.queue_timeout_us
        policy = door.policy
        wait = policy.wait_at(level) if level else policy.wait
        if asked_us or wait.timeout_ns:
            timeout_ns = wait.timeout_of(asked_us * 1000)
            if timeout_ns:
                pending.expires_ns = min(pending.expires_ns, now_ns + timeout_ns)
        if self.quarantine.until_ns and self.quarantine.holds(pending.inputs, now_ns):
            return Refusal(INTERNAL, why_refused(self.name), counted.QUARANTINED)
        return refusal

    def _cut(self, pending: Pending, now_ns: int) -> None:
        """Queue a large request; in parts, if its rows may be told apart."""
        most = self.door.policy.max_batch_rows
        if not most or pending.rows <= most:
            self.queue.put(pending)
            return
        pending.state = HELD  # its parts wait in its stead
        parts = cut(pending, most, pending.bucket.intake.signature.inputs)
        if self.quarantine.until_ns and any(self.quarantine.holds(part.inputs, now_ns) for part in parts):
            pending.parts = None  # none of them was put
            self.tally.refused[counted.QUARANTINED] += 1
            self.fail(pending, INTERNAL, why_refused(self.name))
            return
        for part in parts:
            self.queue.put(part)

    def _make_room(self, newcomer: Pending) -> None:
        """Who came last at the lowest level goes when a request of a higher one would not fit beside it."""
        queue, policy = self.queue, self.door.policy
        while queue.rows + newcomer.cost > policy.max_queue_rows or queue.size + newcomer.size > policy.max_queue_bytes:
            youngest = queue.youngest_below(newcomer.level)
            if youngest is None:
                return
            self.tally.shed[counted.EVICTED] += 1
            kind = "shadow request" if youngest.level == SHADOW_LEVEL else f"request of priority {youngest.level}"
            message = f"this {kind} made room for one of a higher priority in the full queue of {self.name}"
            retry_us = self.door.retry_after_us(newcomer.arrival_ns)
            self.fail(youngest, UNAVAILABLE, message, retry_after_us=retry_us)

    # -- out

    def cancel(self, pending: Pending) -> None:
        """Nobody waits for it any more: it leaves without an answer, and never costs a launch."""
        if pending.state != DONE:
            self.tally.cancelled[pending.state == LAUNCHED] += 1
            self.tally.failed_ns += self._clock() - pending.arrival_ns
            self._leave(pending)

    def forget(self, caller: Caller) -> None:
        """Its link is gone; what it waits for is cancelled besides."""

    def _answers_to(self, root: Pending) -> int:  # noqa: ARG002 - where there are several
        return 0

    def fail(
        self,
        pending: Pending,
        code: int,
        message: str,
        *,
        executed: pb.Executed = pb.EXECUTED_NO,
        retry_after_us: int = 0,
    ) -> None:
        """Answer with an error, unless it was answered."""
        root = pending.whole or pending
        if root.state == DONE:
            return
        code = code if code < len(self.tally.by_code) else INTERNAL  # a worker's own, which may be anything
        self.tally.by_code[code] += 1
        if executed == pb.EXECUTED_NO and root.parts is not None and has_begun(root.parts.members):
            executed = pb.EXECUTED_MAYBE  # whatever became of the part that this is about
        reply = error_reply(root.id, code, message, executed=executed, retry_after_us=retry_after_us)
        reply.retries = pending.retries
        reply.seq = self._answers_to(root)
        reply.total_ns = took_ns = self._clock() - root.arrival_ns
        self.tally.failed_ns += took_ns
        turn, root.turn = root.turn, None
        if turn is None:
            send_error(root.caller, reply)
        else:
            turn.say(pb.Frame(replies=[reply]).SerializeToString())
        self._leave(root)

    def expire(self, elsewhere: Iterable[Pending], now_ns: int) -> None:
        """Answer everyone whose time is over, in the queue or `elsewhere`, and set the alarm for the next."""
        if now_ns < self._expiry_ns:
            if self._expiry_ns < FOREVER_NS:
                self._alarm.set(self._expiry_ns, now_ns)
            return
        earliest = FOREVER_NS
        due: list[Pending] = []
        for pending in [*self.queue, *elsewhere]:
            if pending.state == DONE:
                continue
            limit = pending.expires_ns if pending.state == WAITING else pending.deadline_ns
            if limit <= now_ns:
                due.append(pending)
            else:
                earliest = min(earliest, limit)
        for pending in due:
            self._too_late(pending, now_ns)
            if pending.state == WAITING:  # it only went further back
                earliest = min(earliest, pending.expires_ns)
        self._expiry_ns = earliest
        if earliest < FOREVER_NS:
            done_ns = self._clock()
            self._alarm.set(max(earliest, done_ns + _SCAN_SHARE * (done_ns - now_ns)), done_ns)

    def _too_late(self, pending: Pending, now_ns: int) -> None:
        """`pending` has passed its deadline, or its queue timeout when that came first."""
        if (pending.whole or pending).state == DONE:
            return  # with another part of the request
        waits = pending.state == WAITING
        if waits and pending.deadline_ns > now_ns and self.door.policy.wait_at(pending.level).delays:
            pending.bucket.move_back(pending)
            pending.expires_ns = pending.deadline_ns
            return
        since_ms = (now_ns - pending.arrival_ns) / 1e6
        self.tally.expired[not waits] += 1
        if pending.deadline_ns > now_ns:
            limit_ms = (pending.expires_ns - pending.arrival_ns) / 1e6
            self.tally.shed[counted.TIMED_OUT] += 1
            message = f"queue timeout of {limit_ms:.1f} ms passed, {self.queue.rows} rows wait for {self.name}"
            self.fail(pending, UNAVAILABLE, message, retry_after_us=self.door.retry_after_us(now_ns))
        elif waits:
            message = f"deadline passed after {since_ms:.1f} ms in the queue of {self.name}"
            self.fail(pending, DEADLINE_EXCEEDED, message)
        else:
            message = f"deadline passed after {since_ms:.1f} ms, while {self.name} ran or was to run again"
            self.fail(pending, DEADLINE_EXCEEDED, message, executed=pb.EXECUTED_MAYBE)

    def _leave(self, root: Pending) -> None:
        for member in root.parts.members if root.parts else (root,):
            if member.state == WAITING:
                self.queue.drop(member)
                member.inputs = []  # its place may stay for a while
            member.state = DONE
        root.state = DONE
        if root.turn is not None:
            root.turn.skip()
            root.turn = None
        caller = root.caller
        caller.pending.pop(root.id, None)
        if caller.lent:
            caller.give_back(root.id)
        if self.door.closed:
            self.quiet()

    def _refuse(self, caller: Caller, number: int, refusal: Refusal) -> None:
        self.tally.refused[refusal.reason] += 1
        self.tally.by_code[refusal.code] += 1
        reply = error_reply(number, refusal.code, refusal.message, retry_after_us=refusal.retry_after_us)
        send_error(caller, reply)
