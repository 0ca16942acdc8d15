"""One worker process as its supervisor holds it: started, heard, measured, ended."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import structlog

from services.runtime import report
from services.runtime.cgroup import Cgroup
from services.runtime.job import Job
from services.runtime.output import Lines
from services.runtime.processes import peak_bytes, resident_bytes
from services.runtime.stamp import Stamp
from turnout.v1 import runtime_pb2 as pb

_CHUNK_BYTES = 64 << 10
_BACKLOG = 64


class WorkerProcess:
    """A running worker. Made by `start`; `kill` and `close` must follow."""

    def __init__(
        self, job: Job, process: asyncio.subprocess.Process, stamp: Stamp, reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter, group: Cgroup | None, log: structlog.typing.FilteringBoundLogger,
    ) -> None:  # fmt: skip
        self.pid = process.pid
        self._socket, self._socket_inode = job.socket, job.socket.stat().st_ino
        self._group = group
        self._was_out_of_memory = False
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
    async def start(
        cls, job: Job, environ: Mapping[str, str], group: Cgroup | None, log: structlog.typing.FilteringBoundLogger
    ) -> Self:
        """Start a worker for `job`, whose descriptors and parent are filled in here. Raises OSError."""
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        stamp_fd = Stamp.create()
        try:
            with _listening(job.socket) as listening:
                files = {"reports_fd": theirs.fileno(), "stamp_fd": stamp_fd, "listen_fd": listening.fileno()}
                job = job.model_copy(update={"parent": os.getpid()} | files)
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "services.runtime.begin", job.model_dump_json(),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    pass_fds=tuple(files.values()),
                    env=dict(environ),
                    start_new_session=True,  # so that what it starts itself can be ended with it
                )  # fmt: skip
            if group is not None:
                _put(process.pid, group, log)
            return cls(job, process, Stamp(stamp_fd), reader, writer, group, log)
        except BaseException:
            writer.close()
            raise
        finally:
            theirs.close()
            os.close(stamp_fd)

    async def report(self) -> pb.Instance | None:
        """The next thing it says; None when it is gone."""
        return await report.receive(self._reader)

    def is_reachable(self) -> bool:
        """Whether the socket that it listens on is still there for its batcher to find."""
        try:
            return self._socket.stat().st_ino == self._socket_inode
        except OSError:
            return False

    @property
    def was_out_of_memory(self) -> bool:
        """Whether the kernel killed it, or what it started, at the limit of its control group."""
        return self._was_out_of_memory or (self._group is not None and self._group.was_out_of_memory)

    def memory_bytes(self) -> int:
        """Resident memory but for what it shares with its batcher; 0 when it is gone."""
        return resident_bytes(self.pid)

    def peak_bytes(self) -> int:
        """The most resident memory that it ever had; 0 when it is gone."""
        return peak_bytes(self.pid)

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
        if self._group is not None:
            self._was_out_of_memory = self._group.was_out_of_memory
            await self._group.end()
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


def _listening(path: Path) -> socket.socket:
    """A socket that listens at `path`, in place of what was there. The worker need not reach the folder for it."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
        path.chmod(0o660)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _put(pid: int, group: Cgroup, log: structlog.typing.FilteringBoundLogger) -> None:
    try:
        group.add(pid)
    except OSError as error:  # it may be gone already
        log.warning("worker_not_in_cgroup", reason=str(error))


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
