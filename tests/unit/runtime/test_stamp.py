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
    worker.end()

    assert (idle, busy, supervisor.busy_ns(900)) == (0, 400, 0)
    assert supervisor.batches == 1
    worker.close()
    supervisor.close()
