"""How a worker begins: `python -m services.runtime.begin JOB`. It is confined before it has a second thread.

Libraries start threads when they are imported, and a thread keeps the privileges that it began with.
"""

import importlib
import os
import signal
import sys

from services.chassis.process import die_with_parent
from services.runtime.confine import confine
from services.runtime.imports import hidden
from services.runtime.job import Job


def main(argument: str) -> int:
    """The exit status of the worker."""
    job = Job.parse(argument.encode())
    confine(job)
    die_with_parent(job.parent, signal.SIGKILL)  # after confine: a change of user undoes it
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        raise RuntimeError("a worker must be confined before it has threads")
    with hidden("rich"):  # structlog would import it for terminals, which takes longer than the rest of it
        worker = importlib.import_module("services.runtime.worker")
    status: int = worker.main(job)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
