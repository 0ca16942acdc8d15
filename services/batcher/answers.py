"""What becomes of a batch that ran well: learnt from, told apart, and answered."""

from collections.abc import Callable

from services.batcher.collate import Column, WrongRowsError, columns_of
from services.batcher.lobby import Lobby
from services.batcher.recovery import Recovery
from services.batcher.replies import Layouts, Scatter
from services.batcher.tuner import Tuner
from services.batcher.worker import Batch, Worker
from turnout.v1 import link_pb2 as pb

_LOOK_AHEAD_EVERY = 8  # batches


class Answers:
    """The good answers of one model version."""

    __slots__ = ("_clock", "_layouts", "_lobby", "_recovery", "_tuner")

    def __init__(self, lobby: Lobby, recovery: Recovery, tuner: Tuner, clock: Callable[[], int]) -> None:
        self._lobby = lobby
        self._recovery = recovery
        self._tuner = tuner
        self._clock = clock
        self._layouts = Layouts()

    def learn(self, worker: Worker, batch: Batch, took_ns: int, now_ns: int) -> None:
        """Learn how long batches take."""
        lobby = self._lobby
        service = lobby.service
        service.measured(batch.cost, took_ns, now_ns)
        if batch.service is not service:
            batch.service.measured(batch.cost, took_ns, now_ns)
        worker.recount(now_ns)
        lobby.tally.ran(batch.rows, took_ns, now_ns)
        latest_ns = now_ns - batch.oldest_ns if lobby.door.policy.target_ns else 0
        self._tuner.ran(batch.cost, took_ns, latest_ns, len(batch.members), service)
        if not service.samples % _LOOK_AHEAD_EVERY:
            lobby.door.look_ahead(now_ns)

    def read(self, batch: Batch, reply: pb.Reply) -> list[Column] | None:
        """What `send` takes; None when the members were told that what came back cannot be told apart."""
        bucket = batch.first.bucket
        padder = bucket.intake.padder
        try:
            columns = columns_of(reply.outputs, batch.rows) if bucket.intake.batches else []
            if padder is not None and bucket.intake.batches:
                padder.mark(columns, bucket.inner)
        except WrongRowsError as error:
            self._recovery.broken(batch, str(error))
            return None
        self._recovery.succeeded(batch)
        return columns

    def send(self, batch: Batch, reply: pb.Reply, columns: list[Column], now_ns: int) -> None:
        """Answer the members."""
        lobby = self._lobby
        wait_us = int(lobby.door.wait_ns(now_ns) / 1000)
        scatter = Scatter(batch, reply, now_ns, wait_us, self._layouts, self._clock)
        if batch.first.bucket.intake.batches:
            scatter.split(columns)
        else:
            scatter.whole()
        tally = lobby.tally
        tally.answered(scatter.count, scatter.queue_ns, scatter.middle_ns, scatter.scatter_ns)
        tally.told_apart(batch.rows, scatter.middle_ns, self._clock() - now_ns)
