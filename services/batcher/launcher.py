"""Which batch leaves next, and for which worker: asks the policy and acts."""

from services.batcher.alarm import Alarm
from services.batcher.buckets import Bucket
from services.batcher.device import Device
from services.batcher.lobby import Lobby
from services.batcher.policy import ALONE, ANSWER_NS, choose, departure, fitting
from services.batcher.recovery import Recovery
from services.batcher.request import DONE, LAUNCHED, Pending
from services.batcher.tally import HOPELESS
from services.batcher.tuner import Tuner
from services.batcher.worker import Batch, Worker
from services.core.errors import UNAVAILABLE

_HELD_BYTES = 1 << 20
_LEAST_NS = 1000  # what a batch counts for on its device before it is known how long they take


class Launcher:
    """A Member of its device: takes from queue and recovery of one model version, gives to its workers."""

    def __init__(
        self, lobby: Lobby, recovery: Recovery, workers: list[Worker], tuner: Tuner, device: Device, alarm: Alarm
    ) -> None:
        self.used = 0.0  # of the device, by weight
        self._lobby = lobby
        self._queue = lobby.queue
        self._recovery = recovery
        self._workers = workers
        self._tuner = tuner
        self._device = device
        self._alarm = alarm
        self._reserved: Worker | None = None  # for the suspect that is next, or runs there

    def pump(self, now_ns: int) -> None:
        """Launch everything that may leave now, here and in those that share the device."""
        self._device.pump(self, now_ns)

    def wake_at(self, at_ns: int, now_ns: int) -> None:
        """Look again at `at_ns`, if nothing happens before."""
        self._alarm.set(at_ns, now_ns)

    @property
    def waiting(self) -> tuple[bool, bool]:
        """Whether primary requests, and whether shadow ones, wait for a batch."""
        queue = self._queue
        if not queue.rows:
            return bool(self._recovery), False
        primary = queue.primary_rows
        return bool(primary or self._recovery), queue.rows > primary

    def launch_one(self, now_ns: int, *, shadows: bool) -> bool:
        """Launch the next batch, if one may leave now."""
        if self._recovery and not shadows and self._recover(now_ns):
            return True
        while self._queue.rows:
            worker = self._free_worker(now_ns)
            if worker is None:
                return False
            for bucket in self._queue.departing(shadows=shadows):
                outcome = self._launch_from(bucket, worker, now_ns)
                if outcome is not None:
                    break
            else:
                return False
            if outcome:
                return True
        return False

    def _free_worker(self, now_ns: int) -> Worker | None:
        """The least loaded worker with a free slot that is nobody's, and is about to need a batch.

        One that is busy for longer gets none yet: those who come until then can still be in it. Unless it is large:
        its way to the worker takes time that the batch before it hides.
        """
        best: Worker | None = None
        may_hold = self._queue.size < _HELD_BYTES
        for worker in self._workers:
            if worker.free_slots <= 0 or worker is self._reserved:
                continue
            if may_hold and self._is_early(worker, now_ns):
                continue
            if best is None or len(worker.in_flight) < len(best.in_flight):
                best = worker
        return best

    def _is_early(self, worker: Worker, now_ns: int) -> bool:
        """Whether `worker` is busy, and needs its next batch only later; the alarm is set for then."""
        due_ns = worker.busy_until_ns - worker.lead_ns
        if not worker.in_flight or due_ns <= now_ns:
            return False
        self._alarm.set(due_ns, now_ns)
        return True

    def _launch_from(self, bucket: Bucket, worker: Worker, now_ns: int) -> bool | None:
        """Whether a batch of `bucket` left; False: its requests were told to go. None: it waits for the alarm."""
        if bucket.front() is None:
            return None
        form = self._tuner.form if bucket.intake.batches else ALONE
        start_ns = max(now_ns, worker.busy_until_ns) + ANSWER_NS  # deadlines are those of answers
        service = bucket.service if bucket.service.known(now_ns) else None
        rows, at_ns = form.rows, now_ns
        if form.delay_ns and bucket.rows < form.rows:
            rows, at_ns = departure(form, bucket.rows, bucket.oldest_ns(), now_ns, int(self._lobby.gap_ns))
        if at_ns > now_ns:
            self._alarm.set(at_ns, now_ns)
            return None
        count, is_late = fitting(bucket.members, rows, start_ns, service)
        if is_late and service is not None:
            return self._launch_in_time(worker, bucket, form.rows, start_ns, now_ns)
        self._recovery.budget.earn()
        self._launch(worker, Batch(self._queue.take(bucket, count), now_ns), now_ns)
        return True

    def _launch_in_time(self, worker: Worker, bucket: Bucket, most: int, start_ns: int, now_ns: int) -> bool:
        """Launch those who can be in time; tell those who cannot. Whether anybody could."""
        members, front = bucket.members, bucket.members[0]
        if front.level:  # nobody goes for the sake of a lower priority
            members = [member for member in members if member.level == front.level]
        chosen, hopeless = choose(members, most, start_ns, bucket.service)
        if chosen:
            self._queue.pick(chosen)
            self._recovery.budget.earn()
            self._launch(worker, Batch(chosen, now_ns), now_ns)
        for pending in hopeless:
            self._shed(pending, now_ns)
        return bool(chosen)

    def _shed(self, pending: Pending, now_ns: int) -> None:
        if pending.state == DONE:
            return  # with another part of the request
        self._lobby.tally.shed[HOPELESS] += 1
        message = f"{self._lobby.name} cannot answer in the {(pending.deadline_ns - now_ns) / 1e6:.1f} ms that are left"
        self._lobby.fail(pending, UNAVAILABLE, message, retry_after_us=self._lobby.door.retry_after_us(now_ns))

    def _launch(self, worker: Worker, batch: Batch, now_ns: int) -> None:
        service = batch.service
        batch.expected_ns = max(_LEAST_NS, int(service.predict_ns(batch.cost)) if service.known(now_ns) else 0)
        self._device.launched(batch, now_ns)
        self.used += batch.expected_ns / self._lobby.door.policy.weight
        try:
            worker.launch(batch)
        except Exception as error:  # noqa: BLE001 - it is logged, and ends this batch only
            worker.give_up(batch)
            self.landed(batch, 0)
            self._recovery.crashed(batch, error)

    def _launch_again(self, worker: Worker, batch: Batch, now_ns: int) -> None:
        for pending in batch.members:
            pending.state = LAUNCHED
            pending.retries += 1
        self._launch(worker, batch, now_ns)

    def _recover(self, now_ns: int) -> bool:
        """Launch the next batch of a search, or the next suspect; whether there was one that could leave."""
        recovery, reserved = self._recovery, self._reserved
        worker = self._free_worker(now_ns)
        if worker is not None:
            batch = recovery.next_group(now_ns)
            if batch is not None:
                self._launch_again(worker, batch, now_ns)
                return True
        if reserved is not None and any(batch.suspect for batch in reserved.in_flight.values()):
            return False
        self._reserved = None
        accepting = [worker for worker in self._workers if worker.accepting]
        if not accepting or recovery.suspect is None:
            return False
        # Alone, on a worker with nothing else on it; until there is one, the least loaded takes nothing new.
        worker = self._reserved = min(accepting, key=lambda each: len(each.in_flight))
        if worker.in_flight:
            return False
        self._launch_again(worker, recovery.next_suspect(now_ns), now_ns)
        return True

    def landed(self, batch: Batch, took_ns: int) -> None:
        """A batch has left the device after `took_ns` (0 = not known)."""
        self._device.landed(batch)
        if took_ns:
            self.used += (took_ns - batch.expected_ns) / self._lobby.door.policy.weight
        if batch.suspect:
            self._reserved = None

    def leave(self) -> None:
        """It is over: the device is shared by the others."""
        self._device.leave(self)
