"""A device with a known speed, standing where a pod's runtime and workers stand.

    python -m loadtest.batching.worker --run-dir RUN --model slow,5,0.2,32 --model fast,0.1,0.01,32 --slots 2

A launch of `rows` takes b + a x rows milliseconds of wall time in which no processor works, as on an accelerator: the
figures then say something about batching on a machine whose cores are busy with everything else. One launch after the
other, over all models. Every row comes back as it is, so that answers can be checked. All else is what real workers
do: the same links, the same executor.
"""

import argparse
import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import grpc.aio
import uvloop
from numpy.typing import NDArray

from loadtest.batching.sleeping import sleep_exactly
from services.chassis.link import PROTOCOL, LinkServer, listen
from services.chassis.process import die_with_parent, keep_freed_memory
from services.chassis.wire import signature_to_proto
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, Options
from services.runtime.executor import Executor
from services.runtime.job import Job
from services.runtime.stamp import Stamp
from turnout.v1 import link_pb2 as pb
from turnout.v1 import runtime_pb2, runtime_pb2_grpc

VERSION = "1"


class Device(NamedTuple):
    """One model: NAME,B_MS,A_MS,WIDTH; width -1 = rows of any width."""

    model: str
    base_ms: float
    row_ms: float
    width: int

    @classmethod
    def parse(cls, text: str) -> Self:
        model, base_ms, row_ms, width = text.split(",")
        return cls(model, float(base_ms), float(row_ms), int(width))

    def text(self) -> str:
        return ",".join(map(str, self))

    @property
    def signature(self) -> Signature:
        x, y = (TensorSpec(name, "FP32", (-1, self.width)) for name in "xy")
        return Signature(inputs=(x,), outputs=(y,), batches=True, platform="synthetic")

    def launch_ms(self, rows: int) -> float:
        return self.base_ms + self.row_ms * rows


class SleepingBackend:
    """Echoes after b + a x rows."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def load(self, artifact: Path, options: Options) -> Signature:  # noqa: ARG002 - a Backend's shape
        return self._device.signature

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        end_s = time.monotonic() + self._device.launch_ms(len(inputs["x"])) / 1e3
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(left_s)
        return {"y": inputs["x"]}

    def unload(self) -> None: ...


class Control(runtime_pb2_grpc.RuntimeControlServicer):
    """Tells the batcher of instances that are READY from the start."""

    def __init__(self, instances: list[runtime_pb2.Instance]) -> None:
        self._state = runtime_pb2.RuntimeState(runtime="synthetic", instances=instances)

    async def Watch(  # noqa: N802 - gRPC names the methods
        self,
        request: runtime_pb2.WatchRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext,  # noqa: ARG002
    ) -> AsyncIterator[runtime_pb2.RuntimeState]:
        yield self._state
        await asyncio.Event().wait()


async def _serve_one(device: Device, run_dir: Path, slots: int) -> tuple[LinkServer, runtime_pb2.Instance]:
    digest, path = f"sha256:{device.model}", run_dir / f"{device.model}.sock"
    job = Job(
        id=device.model,
        model=device.model,
        version=VERSION,
        digest=digest,
        framework="synthetic",
        file=path,
        socket=path,
    )
    executor = Executor(job, SleepingBackend(device), device.signature, Stamp(Stamp.create()))
    hello = pb.Hello(service="runtime", instance=job.id, protocol=PROTOCOL)
    server = await listen(f"unix:{path}", executor, hello, keepalive_s=0)
    instance = runtime_pb2.Instance(
        id=job.id,
        model=job.model,
        version=job.version,
        digest=digest,
        state=runtime_pb2.READY,
        data_socket=str(path),
        slots=slots,
        signature=signature_to_proto(device.signature),
    )
    return server, instance


async def serve(devices: list[Device], run_dir: Path, slots: int) -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    served = [await _serve_one(device, run_dir, slots) for device in devices]
    control = grpc.aio.server()
    runtime_pb2_grpc.add_RuntimeControlServicer_to_server(Control([instance for _, instance in served]), control)
    control.add_insecure_port(f"unix:{(run_dir / 'runtime.sock').absolute()}")
    await control.start()
    await stop.wait()
    await control.stop(0)
    for server, _ in served:
        await server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--model", action="append", type=Device.parse, required=True, metavar="NAME,B_MS,A_MS,WIDTH")
    parser.add_argument("--slots", type=int, default=2, help="launches that a batcher may have here at once")
    parser.add_argument("--parent", type=int, default=0, help="process to die with")
    arguments = parser.parse_args()
    if arguments.parent:
        die_with_parent(arguments.parent)
    arguments.run_dir.mkdir(parents=True, exist_ok=True)
    sleep_exactly()
    keep_freed_memory()
    uvloop.run(serve(arguments.model, arguments.run_dir, arguments.slots))


if __name__ == "__main__":
    main()
