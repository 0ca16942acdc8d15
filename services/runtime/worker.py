"""The worker process: one model version, loaded, warmed up and run until its supervisor lets it go.

Begun by begin.py, with a Job.
"""

import asyncio
import gc
import signal
import socket
import time
from dataclasses import replace

import structlog
import uvloop

from services.chassis.link import PROTOCOL, listen
from services.chassis.logs import set_up
from services.chassis.process import keep_freed_memory
from services.chassis.wire import signature_to_proto
from services.core.batching_spec import Padding
from services.core.onnx_spec import OnnxSettings
from services.core.padding import BadPaddingError
from services.core.signature import Signature
from services.core.text_spec import Text
from services.core.torch_spec import TorchSettings
from services.runtime import report
from services.runtime.backends import CPU_ONLY, Backend, BadArtifactError, NotThereError, Options, Run, backend_for
from services.runtime.declaration import agreed
from services.runtime.examples import Examples, of_backend
from services.runtime.executor import Executor
from services.runtime.faults import describe
from services.runtime.imports import UNUSED, hidden
from services.runtime.job import Job
from services.runtime.padding_proof import PaddingProof
from services.runtime.recorded import of_file
from services.runtime.running import named_run
from services.runtime.sequence_state import fitted
from services.runtime.stamp import Stamp
from services.runtime.warm_up import Checked, checked, warm_up
from turnout.v1 import link_pb2 as pb
from turnout.v1 import runtime_pb2

_PULSE_S = 0.5
_STATES = {BadArtifactError: runtime_pb2.FAILED, NotThereError: runtime_pb2.LOADING}

log = structlog.get_logger()


def main(job: Job) -> int:
    """Load, then serve; the exit status."""
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the supervisor
    set_up(job.log_level, instance=job.id, model=job.model, version=job.version)
    with socket.socket(fileno=job.reports_fd) as channel:
        try:
            backend, signature, note = load(job)
        except Exception as error:
            state = _STATES.get(type(error), runtime_pb2.BACKOFF)
            is_known = type(error) in _STATES
            reason = str(error) if is_known else describe(error)
            log.exception("load_failed", reason=reason, exc_info=None if is_known else error)
            report.send(channel, runtime_pb2.Instance(id=job.id, state=state, reason=reason))
            return 1
        uvloop.run(serve(job, backend, signature, note, channel))
        backend.unload()
    return 0


def load(job: Job) -> tuple[Backend, Signature, str]:
    """The backend with its model warm, its signature, and why it does not batch though its artifact says so."""
    if job.device == "cuda" and job.framework in CPU_ONLY:
        raise BadArtifactError(f"instances asks for a GPU; {job.framework} models run on the processor")
    began = time.monotonic()
    gc.disable()  # nothing of what is made while loading is garbage: looking for it takes a tenth of the time
    with hidden(*UNUSED.get(job.framework, ())):
        backend = backend_for(job.framework)
    options = options_of(job)
    signature = agreed(backend.load(job.file, options), job.declared)
    if job.signature_name not in ("", signature.name):
        raise BadArtifactError(f"signature {job.signature_name!r} is asked for; a {job.framework} model has no such")
    if signature.decoupled and (job.states or job.controls):
        raise BadArtifactError("sequence_batching is asked for; a decoupled model gives any number of answers")
    loaded_s = time.monotonic() - began
    signature, note = fitted(signature, job.states, job.controls)
    examples = of_backend(backend, signature, job.warm_up.max_requests).and_then(of_file(job, signature))
    found = Checked(signature, note, 1) if note else checked(backend.run, signature, job.pad_to, examples.fitting)
    if found.note:
        log.warning("batching_switched_off", reason=found.note)
    if job.pad_to is not None:
        prove(job.pad_to, backend.run, found)
    missed = warm(job, backend, found, examples)
    usual = replace(found.signature, more=tuple(readied(backend, other, job) for other in signature.more))
    gc.collect()
    gc.freeze()  # what is loaded stays: later collections need not look at it
    gc.enable()
    log.info("loaded", framework=job.framework, load_s=round(loaded_s, 3), total_s=round(time.monotonic() - began, 3))
    return backend, usual, "; ".join(filter(None, (found.note, missed)))


def options_of(job: Job) -> Options:
    """Raises BadArtifactError where the spec wants what the framework has not."""
    if job.text is not None and job.framework != "transformers":
        raise BadArtifactError(f"the model's spec has text, which is of transformers; this is {job.framework}")
    if job.onnx != OnnxSettings() and job.framework != "onnx":
        raise BadArtifactError(f"the model's spec has onnx; this is {job.framework}")
    if job.torch is not None and job.framework != "torch":
        raise BadArtifactError(f"the model's spec has torch, which is of PyTorch; this is {job.framework}")
    if job.decoupled and job.framework != "python":
        raise BadArtifactError(f"the model's spec says decoupled, which Python models can be; this is {job.framework}")
    return Options(
        job.trusted, job.threads, job.outputs, job.doubles, job.declared, job.device, job.signature_name,
        job.max_execution_ms, job.text or Text(), job.onnx, job.cache,
        job.torch or TorchSettings(), job.decoupled,
    )  # fmt: skip


def warm(job: Job, backend: Backend, found: Checked, examples: Examples) -> str:
    """Run what the version is to run before it is ready; what was wrong with its examples, for the operator."""
    try:
        warmed = warm_up(backend.run, found, job.warm_up_sizes, job.pad_to, examples.fitting, job.warm_up.max_ms / 1000)
    except Exception as error:  # noqa: BLE001 - synthetic rows need not be valid ones
        log.warning("warm_up_failed", reason=describe(error))
        return ""
    bad, reason = examples.left_out + warmed.raised, examples.reason or warmed.reason
    log.info("warmed_up", sizes=warmed.sizes, requests=warmed.requests, left_out=bad)
    if not bad:
        return ""
    note = f"warm-up ran {warmed.requests} requests and left {bad} out: {reason}"
    log.warning("warm_up_left_out", reason=note)
    return note


def readied(backend: Backend, other: Signature, job: Job) -> Signature:
    """One of the artifact's other signatures, warm, and batching only if that is known to be harmless."""
    run = named_run(backend, other.name)
    shown = of_backend(backend, other, job.warm_up.max_requests, other.name)
    examples = shown.and_then(of_file(job, other, usual=False))
    found = checked(run, other, None, examples.fitting)
    try:
        warm_up(run, found, job.warm_up_sizes, None, examples.fitting, job.warm_up.max_ms / 1000)
    except Exception as error:  # noqa: BLE001 - synthetic rows need not be valid ones
        log.warning("warm_up_failed", signature=other.name, reason=describe(error))
    log.info("signature_readied", signature=other.name, batches=found.signature.batches, note=found.note)
    return found.signature


def prove(padding: Padding, run: Run, found: Checked) -> None:
    """Raise BadArtifactError where rows cannot be filled up, or where that would change what the model answers."""
    try:
        proof = PaddingProof(padding, found.signature, found.free)
    except BadPaddingError as error:
        raise BadArtifactError(f"{error} ({found.note})" if found.note else str(error)) from None
    try:
        fault = proof.fault(run)
    except Exception as error:  # noqa: BLE001 - a model may need more than synthetic rows have
        log.warning("padding_not_proven", reason=describe(error))
        return
    if fault:
        raise BadArtifactError(f"pad_to changes what the model answers: {fault}")


async def serve(job: Job, backend: Backend, signature: Signature, note: str, channel: socket.socket) -> None:
    """Answer batches until told to stop, or until the supervisor is gone."""
    stop = asyncio.Event()
    orphaned = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    stamp = Stamp(job.stamp_fd)
    executor = Executor(job, backend, signature, stamp)
    hello = pb.Hello(service="runtime", instance=job.id, protocol=PROTOCOL)
    listening = socket.socket(fileno=job.listen_fd)
    # The kernel tells when a peer on this host is gone, and a long batch must not look like a dead peer.
    server = await listen(f"unix:{job.socket}", executor, hello, keepalive_s=0, sock=listening)
    ready = runtime_pb2.Instance(
        id=job.id, state=runtime_pb2.READY, reason=note, signature=signature_to_proto(signature)
    )
    report.send(channel, ready)
    channel.setblocking(False)

    def beat() -> None:
        stamp.beat(time.monotonic_ns())
        loop.call_later(_PULSE_S, beat)

    def on_channel() -> None:
        try:
            gone = not channel.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            gone = True
        if gone:
            loop.remove_reader(channel)
            orphaned.set()
            stop.set()

    beat()
    loop.add_reader(channel, on_channel)
    try:
        await stop.wait()
        if not orphaned.is_set():
            server.drain("the instance is let go")
            await _quiet(executor, job.quiet_s)
    finally:
        loop.remove_reader(channel)
        await server.close()


async def _quiet(executor: Executor, quiet_s: float) -> None:
    """Wait until every link was closed by its peer, or no batch came for `quiet_s` and none is answered still."""
    loop = asyncio.get_running_loop()
    executor.last_work_s = loop.time()
    while executor.links:
        left_s = quiet_s if executor.is_streaming else executor.last_work_s + quiet_s - loop.time()
        if left_s <= 0:
            return
        try:
            async with asyncio.timeout(left_s):
                await executor.all_closed.wait()
        except TimeoutError:
            continue
