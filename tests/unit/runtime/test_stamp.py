"""The memory that a worker and its supervisor share."""

import os

from services.runtime.stamp import Stamp


def test_the_other_end_sees_a_batch_begin_and_end() -> None:
    fd = Stamp.create()
    worker, supervisor = Stamp(fd), Stamp(fd)
    os.close(fd)
    idle = supervisor.busy_ns(500)
    worker.begin(100)
    busy = supervisor.busy_ns(500)
    worker.end(500)

    assert (idle, busy, supervisor.busy_ns(900)) == (0, 400, 0)
    assert supervisor.batches == 1
    worker.close()
    supervisor.close()


def test_a_worker_is_silent_while_neither_its_loop_turns_nor_a_batch_runs() -> None:
    fd = Stamp.create()
    worker, supervisor = Stamp(fd), Stamp(fd)
    os.close(fd)
    loading = supervisor.silent_ns(500)
    worker.beat(600)
    after_a_pulse = supervisor.silent_ns(700)
    worker.begin(700)
    in_a_batch = supervisor.silent_ns(5000)
    worker.end(6000)

    assert (loading, after_a_pulse, in_a_batch, supervisor.silent_ns(6050)) == (0, 100, 0, 50)
    worker.close()
    supervisor.close()
