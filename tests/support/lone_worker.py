"""One worker process without a runtime around it: started on an artifact, asked over its link."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from services.core import arrays
from services.runtime.environment import environment
from services.runtime.job import Job
from services.runtime.process import WorkerProcess
from tests.support.runtime_pod import READY, Batcher
from turnout.v1 import link_pb2, runtime_pb2
from turnout.v1.tensor_pb2 import Tensor

TIMEOUT_S = 100.0


class Words:
    """What a worker logs, as it comes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, _event: str, *, line: str) -> None:
        self.lines.append(line)


class LoneWorker:
    """A worker that is READY, and a link to it."""

    def __init__(self, process: WorkerProcess, ready: runtime_pb2.Instance, batcher: Batcher, words: Words) -> None:
        self.process = process
        self.signature = ready.signature
        self.reason = ready.reason
        self.batcher = batcher
        self.words = words

    async def ask(
        self, inputs: Mapping[str, np.ndarray] | Sequence[Tensor], rows: int = 1, **fields: Any
    ) -> link_pb2.Reply:
        """The reply to one batch of `rows`."""
        given = tensors(inputs) if isinstance(inputs, Mapping) else inputs
        async with asyncio.timeout(TIMEOUT_S):
            return await (await self.batcher.send_array(np.empty(rows), inputs=given, **fields))

    async def answer(self, inputs: Mapping[str, np.ndarray], rows: int = 1, **fields: Any) -> dict[str, np.ndarray]:
        """The outputs of one batch, which must be OK."""
        reply = await self.ask(inputs, rows, **fields)
        assert reply.code == 0, f"{reply.code}: {reply.message}"
        return {each.name: arrays.decode(each.datatype, each.shape, each.data) for each in reply.outputs}


def tensors(inputs: Mapping[str, np.ndarray]) -> list[Tensor]:
    found = []
    for name, array in inputs.items():
        datatype, data = arrays.encode(array)
        found.append(Tensor(name=name, datatype=datatype, shape=array.shape, data=data))
    return found


@contextlib.asynccontextmanager
async def lone_worker(framework: str, file: Path, **fields: Any) -> AsyncIterator[LoneWorker]:
    """A worker for the artifact `file`; `fields` are those of its Job. AssertionError if it does not become READY."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as folder:
        words = Words()
        values = {"id": "w-1", "model": "m", "version": "1", "digest": "d1", "quiet_s": 0.1}
        job = Job.model_validate(
            values | {"framework": framework, "file": file, "socket": Path(folder) / "w.sock"} | fields
        )
        environ = environment(os.environ, job.threads)
        process = await WorkerProcess.start(job, environ, None, words)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                ready = await process.report()
            assert ready is not None and ready.state == READY, f"{ready}; it said {words.lines[-20:]}"  # noqa: PT018
            ready.model, ready.version, ready.data_socket = job.model, job.version, str(job.socket)
            async with Batcher(ready) as batcher:
                yield LoneWorker(process, ready, batcher, words)
        finally:
            process.kill()
            await process.close()
