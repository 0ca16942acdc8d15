"""One worker process as its supervisor holds it: started, heard, measured, ended."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import structlog

from services.runtime import report
from services.runtime.job import Job
from services.runtime.output import Lines
from services.runtime.stamp import Stamp
from turnout.v1 import runtime_pb2 as pb

_CHUNK_BYTES = 64 << 10
_MEMORY = re.compile(r"^(VmRSS|RssShmem):\s+(\d+) kB$", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2"}  # where the operator says nothing else: errors only


def environment(environ: Mapping[str, str], threads: int, visible_gpus: str | None = None) -> dict[str, str]:
    """What a worker inherits: thread counts bounded before a framework reads them, none of the mesh's own settings."""
    kept = {name: value for name, value in environ.items() if not name.startswith("TURNOUT_")}
    kept = _QUIET | kept | dict.fromkeys(_THREAD_COUNTS, str(threads)) | {"PYTHONUNBUFFERED": "1"}
    return kept if visible_gpus is None else kept | {"CUDA_VISIBLE_DEVICES": visible_gpus}


class WorkerProcess:
    """A running worker. Made by `start`; `kill` and `close` must follow."""

    def __init__(
        self, process: asyncio.subprocess.Process, stamp: Stamp, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter, log: structlog.typing.FilteringBoundLogger,
    ) -> None:  # fmt: skip
        self.pid = process.pid
        self._process = process
        self._stamp = stamp
        self._reader = reader
        self._writer = writer
        self._log = log
        self._lines = Lines()
        self._is_closed = False
        loop = asyncio.get_running_loop()
        self._output = loop.create_task(self._log_output(), name=f"output-{self.pid}")
        self.exited = loop.create_task(process.wait(), name=f"exit-{self.pid}")

    @classmethod
    async def start(cls, job: Job, log: structlog.typing.FilteringBoundLogger) -> Self:
        """Start a worker for `job`, whose descriptors and parent are filled in here. Raises OSError."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        stamp_fd = Stamp.create()
        try:
            job = job.model_copy(update={"parent": os.getpid(), "reports_fd": theirs.fileno(), "stamp_fd": stamp_fd})
            job.socket.unlink(missing_ok=True)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "services.runtime.worker", job.model_dump_json(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(theirs.fileno(), stamp_fd),
                env=environment(os.environ, job.threads, job.visible_gpus),
                start_new_session=True,  # so that what it starts itself can be ended with it
            )  # fmt: skip
            stamp = Stamp(stamp_fd)
        except BaseException:
            writer.close()
            raise
        finally:
            theirs.close()
            os.close(stamp_fd)
        return cls(process, stamp, reader, writer, log)

    async def report(self) -> pb.Instance | None:
        """The next thing it says; None when it is gone."""
        return await report.receive(self._reader)

    def memory_bytes(self) -> int:
        """Resident memory but for what it shares with its batcher; 0 when it is gone."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        found = dict(_MEMORY.findall(status))
        return (int(found.get("VmRSS", 0)) - int(found.get("RssShmem", 0))) << 10

    def peak_bytes(self) -> int:
        """The most resident memory that it ever had; 0 when it is gone."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        found = _PEAK.search(status)
        return int(found[1]) << 10 if found else 0

    def busy_ms(self) -> float:
        """How long the batch in progress has run; 0 when there is none."""
        return self._stamp.busy_ns(time.monotonic_ns()) / 1e6

    def silent_ms(self) -> float:
        """How long it has shown no sign of life though it runs no batch."""
        return self._stamp.silent_ns(time.monotonic_ns()) / 1e6

    @property
    def batches(self) -> int:
        return self._stamp.batches

    @property
    def last_line(self) -> str:
        """The last thing it printed."""
        return self._lines.last

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """Kill it and everything it started; `close` waits until it is gone."""
        if not self._is_closed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def close(self) -> int:
        """Wait until it is gone, and let go of what it held; its exit status as asyncio gives it."""
        status = await self.exited
        if self._is_closed:
            return status
        self._is_closed = True
        with contextlib.suppress(TimeoutError):  # a child that left the group may hold the pipe open
            async with asyncio.timeout(1):
                await self._output
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        self._stamp.close()
        return status

    async def _log_output(self) -> None:
        stdout = self._process.stdout
        if stdout is None:
            return
        loop = asyncio.get_running_loop()
        while chunk := await stdout.read(_CHUNK_BYTES):
            for line in self._lines.feed(chunk, loop.time()):
                self._log.info("worker_output", line=line)
        for line in self._lines.end(loop.time()):
            self._log.info("worker_output", line=line)


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
