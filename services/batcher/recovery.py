"""What happens to requests after their batch raised or its worker died: who runs again, with whom, and who does not."""

from collections import deque
from collections.abc import Iterator

import structlog

from services.batcher.lobby import Lobby
from services.batcher.request import DONE, HELD, MAX_TRIES, Pending, is_done
from services.batcher.search import Failure, Search, SearchBudget
from services.batcher.worker import Batch
from services.chassis.throttle import Throttle
from services.core.errors import DEADLINE_EXCEEDED, INTERNAL, RESOURCE_EXHAUSTED, UNAVAILABLE
from turnout.v1 import link_pb2 as pb

_NO_FAULT_OF_INPUTS = {UNAVAILABLE, DEADLINE_EXCEEDED}  # a search would only take more time of what is slow or gone
_MOST_PUT_BACK = 3  # times a request returns to the queue from workers that refuse it

log = structlog.get_logger()


class Recovery:
    """The requests of one model version that wait to run again, outside the queue."""

    __slots__ = ("_crashes", "_lobby", "_raises", "_searches", "_suspects", "budget")

    def __init__(self, lobby: Lobby) -> None:
        self.budget = SearchBudget()
        self._lobby = lobby
        self._raises = Throttle()  # a model that always raises must not fill the log
        self._crashes = Throttle()
        self._searches: deque[Search[Pending]] = deque()  # those without a launch under way
        self._suspects: deque[Pending] = deque()

    def __bool__(self) -> bool:
        return bool(self._searches or self._suspects)

    def __iter__(self) -> Iterator[Pending]:
        for search in self._searches:
            yield from search.waiting
        yield from self._suspects

    # -- what happened

    def failed(self, batch: Batch, reply: pb.Reply, *, again: bool) -> None:
        """A worker answered with an error; `again`: whether its members could run again as they were read."""
        is_refusal = reply.code == UNAVAILABLE and reply.executed == pb.EXECUTED_NO
        if not again or (reply.code in _NO_FAULT_OF_INPUTS and not is_refusal):
            self.end(batch, reply.code, reply.message, reply.executed)
        elif is_refusal:
            self.refused(batch, reply.message)
        elif reply.code != RESOURCE_EXHAUSTED or not self.part(batch, reply.message):
            self.raised(batch, Failure(reply.code, reply.message), reply.executed)

    def raised(self, batch: Batch, failure: Failure, executed: pb.Executed) -> None:
        """A batch raised: search for the bad requests in it, unless there is no telling or no running again."""
        lobby = self._lobby
        lobby.tally.raised += 1
        live = [pending for pending in batch.members if pending.state != DONE]
        self._log_raised(batch, failure)
        if batch.search is not None:
            self._hold(live)
            batch.search.failed(failure)
            self._resume(batch.search)
        elif len(batch.members) > 1 and live and lobby.door.policy.idempotent:
            self._hold(live)
            self._searches.append(Search(batch.members, failure, is_done))
        else:
            for pending in live:
                lobby.fail(pending, failure.code, failure.message, executed=executed)

    def succeeded(self, batch: Batch) -> None:
        """A batch ran well; its members are answered next."""
        if batch.search is not None:
            batch.search.succeeded()
            self._resume(batch.search)

    def broken(self, batch: Batch, message: str) -> None:
        """A batch ran, but what came back cannot be told apart: nobody in it can be helped."""
        log.warning("wrong_rows_returned", model=str(self._lobby.name), error=message)
        for pending in batch.members:
            self._lobby.fail(pending, INTERNAL, f"model {self._lobby.name}: {message}", executed=pb.EXECUTED_YES)
        self._end(batch)

    def refused(self, batch: Batch, message: str) -> None:
        """A worker did not begin: the requests return to the front of the queue."""
        for pending in reversed(batch.members):
            if pending.state == DONE:
                continue
            pending.retries += 1
            if pending.retries > _MOST_PUT_BACK or batch.search is not None or batch.suspect:
                self._lobby.fail(pending, UNAVAILABLE, message)
            else:
                self._lobby.put_back(pending)
        self._end(batch)

    def part(self, batch: Batch, message: str) -> bool:
        """The answers to a batch are too large together: whether its members can run again, each alone."""
        live = [pending for pending in batch.members if pending.state != DONE]
        if batch.search is not None or len(batch.members) < 2 or not self._lobby.door.policy.idempotent:
            return False
        log.warning("answers_too_large", model=str(self._lobby.name), requests=len(live), error=message)
        self._hold(live)
        self._suspects.extend(live)
        return True

    def lost(self, batch: Batch, now_ns: int) -> None:
        """A worker died with the batch: each member is suspect, and runs once more alone if it may."""
        lobby = self._lobby
        for pending in batch.members:
            if pending.state == DONE:
                continue
            pending.tries += 1
            if lobby.door.policy.idempotent and pending.tries < MAX_TRIES:
                pending.state = HELD
                self._suspects.append(pending)
                continue
            if batch.suspect:
                lobby.quarantine.add(pending.inputs, now_ns)
            times = "twice" if pending.tries > 1 else "and the model is not idempotent"
            message = f"the process of {lobby.name} died with this request, {times}"
            lobby.fail(pending, INTERNAL, message, executed=pb.EXECUTED_MAYBE)
        self._end(batch)

    def end(self, batch: Batch, code: int, message: str, executed: pb.Executed = pb.EXECUTED_MAYBE) -> None:
        """A batch failed that cannot run again: nothing takes its members as they were read."""
        for pending in batch.members:
            self._lobby.fail(pending, code, message, executed=executed)
        self._end(batch)

    def crashed(self, batch: Batch, error: Exception) -> None:
        """What was to be done about a batch raised an error that nobody expected."""
        batches = self._crashes.count(batch.picked_ns)
        if batches:
            log.error("batch_crashed", model=str(self._lobby.name), batches=batches, exc_info=error)
        self.end(batch, INTERNAL, "internal error")

    # -- what to run

    def next_group(self, now_ns: int) -> Batch | None:
        """The next launch of a search; None when there is none to make."""
        while self._searches:
            search = self._searches.popleft()
            group = search.next(allowed=self.budget.is_enough)
            self._tell_verdicts(search)
            if group is not None:
                self.budget.spend()
                self._lobby.tally.search_launches += 1
                return Batch(group, now_ns, search=search)
        return None

    @property
    def suspect(self) -> Pending | None:
        """The one to run alone next."""
        while self._suspects and is_done(self._suspects[0]):
            self._suspects.popleft()
        return self._suspects[0] if self._suspects else None

    def next_suspect(self, now_ns: int) -> Batch:
        """The launch of `suspect`."""
        self._lobby.tally.suspect_launches += 1
        return Batch([self._suspects.popleft()], now_ns, suspect=True)

    def clear(self) -> None:
        """Everyone was answered."""
        self._searches.clear()
        self._suspects.clear()

    # -- inside

    def _log_raised(self, batch: Batch, failure: Failure) -> None:
        batches = self._raises.count(batch.picked_ns)
        if batches:
            log.warning(
                "batch_raised",
                model=str(self._lobby.name),
                rows=batch.rows,
                request_id=batch.first.request_id,
                error=failure.message,
                batches=batches,
            )

    @staticmethod
    def _hold(members: list[Pending]) -> None:
        for pending in members:
            pending.state = HELD

    def _resume(self, search: Search[Pending]) -> None:
        self._tell_verdicts(search)
        self._searches.append(search)

    def _end(self, batch: Batch) -> None:
        if batch.search is not None:
            batch.search.give_up()
            self._tell_verdicts(batch.search)

    def _tell_verdicts(self, search: Search[Pending]) -> None:
        verdicts, search.verdicts = search.verdicts, []
        for pending, failure in verdicts:
            self._lobby.fail(pending, failure.code, failure.message, executed=pb.EXECUTED_YES)
