"""The requests that are sent, and whether what came back is right."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from inference import grpc_service_pb2 as pb
from loadtest.batching.job import Job

TAIL_BYTES = 8  # of each answer; what is kept to check it
_POOL = 256
_NUMBER = struct.Struct("<q")


class Payloads(Protocol):
    """gRPC messages by the request's number."""

    def message(self, number: int) -> bytes:
        """The request with gRPC's prefix."""

    def wrong(self, tails: Sequence[bytes]) -> int:
        """How many of the answers' last bytes are not right; b"" = there was no answer."""


class Numbered:
    """Rows that end in their request's number, for models that give back what they were given."""

    def __init__(self, model: str, rows: int, widths: tuple[int, ...]) -> None:
        self._heads = [message_of(model, np.ones((rows, width), np.float32))[:-TAIL_BYTES] for width in widths]

    def message(self, number: int) -> bytes:
        heads = self._heads
        return heads[number % len(heads)] + number.to_bytes(8, "little")

    def wrong(self, tails: Sequence[bytes]) -> int:
        pack = _NUMBER.pack
        return sum(bool(tail) and tail != pack(number) for number, tail in enumerate(tails))


class Pooled:
    """The same random rows again and again, for a model that this process can run too."""

    def __init__(self, model: str, rows: int, width: int, repository: Path) -> None:
        from loadtest.workloads import session  # noqa: PLC0415 - onnxruntime, for this kind of job only

        inputs = np.random.default_rng(7).normal(size=(_POOL, rows, width)).astype(np.float32)
        self._messages = [message_of(model, each) for each in inputs]
        outputs = session(repository, model).run(None, {"x": inputs.reshape(-1, width)})[0].reshape(_POOL, -1)
        self._last = outputs[:, -(TAIL_BYTES // 4) :]  # what the tail of a right answer holds

    def message(self, number: int) -> bytes:
        return self._messages[number % _POOL]

    def wrong(self, tails: Sequence[bytes]) -> int:
        answered = [number for number, tail in enumerate(tails) if tail]
        wanted = self._last[np.array(answered, int) % _POOL]
        size = 4 * wanted.shape[1]
        short = sum(len(tails[number]) < size for number in answered)
        if short:
            return short
        got = np.frombuffer(b"".join(tails[number][-size:] for number in answered), np.float32).reshape(wanted.shape)
        return int((~np.isclose(got, wanted, rtol=1e-4, atol=1e-5)).any(axis=1).sum())


def payloads_of(job: Job) -> Payloads:
    if job.repository:
        return Pooled(job.model, job.rows, job.widths[0], Path(job.repository))
    return Numbered(job.model, job.rows, job.widths)


def message_of(model: str, inputs: np.ndarray) -> bytes:
    """ModelInferRequest for one input x, with gRPC's prefix; the data comes last."""
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=inputs.shape)
    request = pb.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[inputs.tobytes()])
    message = request.SerializeToString()
    return struct.pack(">BI", 0, len(message)) + message
