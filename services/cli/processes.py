"""A service as a child process: its log, its signals, its end."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from services.cli.plan import Planned

MAX_LOG_BYTES = 32 << 20
_LAST_BYTES = 4096
_LONGEST_WORDS = 300
_WAIT_FOR_DEATH_S = 5.0  # after SIGKILL


class Child:
    """One process that may be started, ended and started again; its output is appended to `log`.

    It is in a session of its own: Ctrl-C is for the parent to act on. Start it from a thread that lives as long as it
    may, since the kernel counts that thread as its parent.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.started_at = 0.0  # monotonic
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._exited: Future[int] = Future()

    @property
    def pid(self) -> int:
        """0 when it does not run."""
        return self._process.pid if self._process and not self._exited.done() else 0

    def start(self) -> None:
        """Start it with a fresh log; the log of the start before is kept as NAME.log.1."""
        if self.pid:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists():
            self.log.replace(_previous(self.log))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        self.started_at = time.monotonic()
        self._exited = Future()
        self._exited.set_running_or_notify_cancel()  # so that giving up a wait() does not cancel it for others
        threading.Thread(
            target=_reap, args=(self._process, self._exited), name=f"{self.name}-reaper", daemon=True
        ).start()

    async def wait(self) -> int:
        """Its exit code, once it has ended; negative = the signal that ended it."""
        return await asyncio.wrap_future(self._exited)

    async def stop(self, timeout_s: float) -> bool:
        """Ask it to end, kill it after `timeout_s`; whether it ended by itself."""
        if not self.pid:
            return True
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            await self.kill()
            return False
        return True

    async def kill(self) -> None:
        """End it as a crash would."""
        if self.pid:
            self.signal(signal.SIGKILL)
            async with asyncio.timeout(_WAIT_FOR_DEATH_S):
                await self.wait()

    def pause(self) -> None:
        """Make it hang, with its connections open."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        if self._process and self.pid:
            self._process.send_signal(number)

    def last_words(self) -> str:
        """The last line that it wrote, short; of a JSON line what happened and why."""
        lines = tail(self.log).splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        try:
            event = json.loads(last)
            last = ": ".join(str(event[key]) for key in ("event", "error", "reason") if event.get(key))
        except (ValueError, TypeError, AttributeError):
            pass
        return last[:_LONGEST_WORDS]

    def trim_log(self, limit_bytes: int = MAX_LOG_BYTES) -> None:
        """Move a log that has outgrown its bound to NAME.log.1 while the process goes on writing."""
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > limit_bytes:
                shutil.copyfile(self.log, _previous(self.log))
                os.truncate(self.log, 0)


def service(planned: Planned, logs: Path, environment: Mapping[str, str] | None = None) -> Child:
    """A planned service as a child that is not started yet; `environment` is added to this process's own."""
    command = [sys.executable, "-m", f"services.{planned.service}"]
    inherited = os.environ if environment is None else {**os.environ, **environment}
    return Child(planned.name, command, {**inherited, **planned.environment()}, logs / f"{planned.name}.log")


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def tail(path: Path, limit_bytes: int = _LAST_BYTES) -> str:
    """The end of a text file; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - limit_bytes))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _previous(log: Path) -> Path:
    return log.with_name(f"{log.name}.1")


def _reap(process: subprocess.Popen[bytes], exited: "Future[int]") -> None:
    exited.set_result(process.wait())
