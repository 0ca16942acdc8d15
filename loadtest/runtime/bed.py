"""What is measured: a worker process at the end of its link, and the bare framework in a process of its own."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from loadtest.runtime.cases import Case
from services.chassis.link import PROTOCOL, Link, LinkClient
from tests.support.lone_worker import LoneWorker, tensors
from turnout.v1 import link_pb2 as pb
from turnout.v1.tensor_pb2 import Tensor

_ANSWER_S = 120.0
_ROLLUP = re.compile(r"^(Rss|Pss):\s+(\d+) kB$", re.MULTILINE)


class Bare:
    """The framework alone."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> Any:
        assert self._process.stdout is not None  # noqa: S101 - it has a pipe
        async with asyncio.timeout(_ANSWER_S):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of the bare calls has ended; its words are above")
        return json.loads(line)

    async def measure(self, rows: int, seconds: float) -> dict[str, Any]:
        """Nanoseconds of each call, and processor time in all."""
        assert self._process.stdin is not None  # noqa: S101 - it has a pipe
        self._process.stdin.write(f"{rows} {seconds}\n".encode())
        return await self.read()  # type: ignore[no-any-return]


@asynccontextmanager
async def bare_calls(case: Case, folder: Path, environ: dict[str, str]) -> AsyncIterator[tuple[Bare, Path]]:
    """The bare framework and the artifact that it made in `folder`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtest.runtime.bare", case.framework, str(folder)),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environ, limit=64 << 20,
    )  # fmt: skip
    bare = Bare(process)
    try:
        yield bare, Path(await bare.read())
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Caller:
    """Sends batches over a link as a batcher does, one after the other."""

    def __init__(self, worker: LoneWorker) -> None:
        self._instance = worker.batcher.instance
        self._number = 0
        self._reply: asyncio.Future[pb.Reply]
        self._opened: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        hello = pb.Hello(service="batcher", instance="bench", protocol=PROTOCOL)
        self._client = LinkClient(f"unix:{self._instance.data_socket}", self, hello, keepalive_s=0)

    async def __aenter__(self) -> Self:
        self._client.start()
        self._link = await asyncio.wait_for(self._opened, _ANSWER_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    def opened(self, link: Link) -> None:
        self._opened.set_result(link)

    def received(self, _link: Link, frame: pb.Frame) -> None:
        for reply in frame.replies:
            self._reply.set_result(reply)

    def closed(self, _link: Link, reason: str) -> None:
        if hasattr(self, "_reply") and not self._reply.done():
            self._reply.set_exception(RuntimeError(f"the worker is gone: {reason}"))

    async def call(self, inputs: Sequence[Tensor], rows: int, size: int) -> pb.Reply:
        """The reply to one batch; RuntimeError if it is no answer."""
        self._number += 1
        self._reply = asyncio.get_running_loop().create_future()
        self._link.frame_for(size).requests.add(
            id=self._number, model=self._instance.model, version=self._instance.version, rows=rows, inputs=inputs
        )
        reply = await self._reply
        if reply.code:
            raise RuntimeError(f"{self._instance.model}: {reply.code}: {reply.message}")
        return reply


def sizes(inputs: dict[str, Any]) -> tuple[list[Tensor], int]:
    """Inputs as they travel, and their bytes."""
    sent = tensors(inputs)
    return sent, sum(len(tensor.data) for tensor in sent) + 200


class Memory(NamedTuple):
    """Of one process; what it shares counts as its part in `pss_bytes`, in full in `rss_bytes`."""

    pss_bytes: int
    rss_bytes: int


def memory_of(pid: int) -> Memory:
    found = dict(_ROLLUP.findall(Path(f"/proc/{pid}/smaps_rollup").read_text()))
    return Memory(int(found["Pss"]) << 10, int(found["Rss"]) << 10)
