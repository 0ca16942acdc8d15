"""A service started as a real process, seen through its log, its ports and its exit code."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

REPOSITORY = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))  # noqa: PTH118, PTH120
TIMEOUT_S = 30.0


class ServiceProcess:
    """One process; each event of its log can be waited for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self._grown = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def logged(self, event: str, **fields: object) -> dict[str, Any]:
        """The first log line of that event with those fields, once it is there; AssertionError if it never comes."""
        async with asyncio.timeout(TIMEOUT_S), self._grown:
            while True:
                for line in self.events():
                    if line["event"] == event and fields.items() <= line.items():
                        return line
                assert not self._reader.done(), f"{event} was never logged: {self.lines}"
                await self._grown.wait()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    async def address(self, name: str) -> str:
        """The address that it says it listens on under `name`."""
        return str((await self.logged("listening", name=name))["address"])

    async def exit_code(self) -> int:
        """Once it has ended by itself, with all of its log read."""
        async with asyncio.timeout(TIMEOUT_S):
            code = await self._process.wait()
            await self._reader
            return code

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            async with self._grown:
                self.lines.append(line.decode().rstrip("\n"))
                self._grown.notify_all()
        async with self._grown:
            self._grown.notify_all()


@asynccontextmanager
async def started(module: str, environ: Mapping[str, str]) -> AsyncIterator[ServiceProcess]:
    """`python -m module` with `environ` and no other TURNOUT_ setting; killed at the end if it still runs."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNOUT_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stderr=asyncio.subprocess.PIPE, cwd=REPOSITORY, env=inherited | environ
    )
    service = ServiceProcess(process)
    try:
        yield service
    finally:
        await service.close()
