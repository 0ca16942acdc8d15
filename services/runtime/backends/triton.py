"""Models of another server: Triton, or any server of the Open Inference Protocol over gRPC.

Their process imports tritonclient's messages, so nothing in it may import ours of the same protocol.
"""

import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import structlog
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from services.chassis.throttle import Throttle
from services.core.arrays import decode, encode
from services.core.errors import DEADLINE_EXCEEDED
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import Arrays, BadArtifactError, ModelError, Options, refuse_unknown
from services.runtime.backends.triton_remote import Described, describe, open_channel, read, status_of, tensor_data
from services.runtime.backends.triton_spec import Remote

_SHARE = 0.9  # of max_execution_ms that a call may take: past all of it this process would be killed
_MOST_LATE = 3  # calls in a row without an answer, after which the connection is made anew

log = structlog.get_logger()


class Model:
    """One model there. A batch larger than the server takes goes in several calls, at once."""

    def __init__(self) -> None:
        self._remote: Remote
        self._channel: Any = None
        self._stub: Any = None
        self._folder = Path()
        self._most_s = 0.0
        self._most_rows: int | None = None
        self._signature: Signature
        self._late = 0
        self._failures = Throttle()

    def load(self, artifact: Path, options: Options) -> Signature:
        refuse_unknown(artifact, options.outputs, ())
        self._remote, self._folder = read(artifact), artifact.parent
        own_s = (self._remote.timeout_ms or options.max_execution_ms) / 1000
        self._most_s = min(own_s, options.max_execution_ms / 1000 * _SHARE)
        self._connect()
        described = describe(self._stub, self._remote, artifact)
        self._most_rows = described.max_batch_size or None
        inputs = described.inputs or (options.declared.input_specs() if options.declared else ())
        outputs = described.outputs or (options.declared.output_specs() if options.declared else ())
        if not (inputs and outputs):
            raise BadArtifactError(
                f"{artifact.name}: the server does not tell inputs and outputs of {self._remote.model!r}: declare them"
                " as signature in the model's spec"
            )
        self._signature = Signature(inputs, outputs, _counts_rows(inputs + outputs, described), described.platform)
        return self._signature

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        return self.run_within(inputs, [spec.name for spec in self._signature.outputs], None)

    def run_within(self, inputs: Arrays, outputs: Collection[str], left_s: float | None) -> dict[str, NDArray]:
        """Raises ModelError with the server's status; DEADLINE_EXCEEDED once nobody waits any longer."""
        if left_s is not None and left_s <= 0:
            raise ModelError(DEADLINE_EXCEEDED, "the deadline passed before the model was asked", executed=False)
        timeout_s = self._most_s if left_s is None else min(left_s, self._most_s)
        requests = [self._request(part, outputs) for part in self._parts(inputs)]
        headers = tuple(self._remote.headers.items())
        calls = [self._stub.ModelInfer.future(each, timeout=timeout_s, metadata=headers) for each in requests]
        try:
            answers = [self._answer(call.result(), outputs) for call in calls]
        except grpc.RpcError as error:
            found = self._error(error, timeout_s)
            if len(calls) > 1 and found.executed is False:
                found.executed = None  # another part of the batch may have run
            raise found from None
        finally:
            for call in calls:
                call.cancel()
        self._late = 0
        if len(answers) == 1:
            return answers[0]
        return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}

    def unload(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _connect(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = open_channel(self._remote, self._folder)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def _parts(self, inputs: Arrays) -> Iterator[Arrays]:
        """The batch, in parts that the server takes."""
        most = self._most_rows
        first = next(iter(inputs.values()))
        rows = len(first) if self._signature.batches and first.ndim else 0
        if most is None or rows <= most:
            yield inputs
            return
        for start in range(0, rows, most):
            yield {name: array[start : start + most] for name, array in inputs.items()}

    def _request(self, inputs: Arrays, outputs: Collection[str]) -> Any:
        request = pb.ModelInferRequest(model_name=self._remote.model, model_version=self._remote.version)
        for name, datatype, _ in self._signature.inputs:
            array = inputs[name]
            request.inputs.add(name=name, datatype=datatype, shape=array.shape)
            request.raw_input_contents.append(encode(array)[1])
        for name in outputs:
            request.outputs.add(name=name)
        return request

    def _answer(self, response: Any, outputs: Collection[str]) -> dict[str, NDArray]:
        given = {}
        for place, tensor in enumerate(response.outputs):
            data = tensor_data(response, place)
            given[tensor.name] = decode(tensor.datatype, tuple(tensor.shape), data)
            wanted = next((spec.datatype for spec in self._signature.outputs if spec.name == tensor.name), "")
            if wanted not in {"", tensor.datatype}:
                raise ValueError(f"the server gave output {tensor.name!r} as {tensor.datatype}, and told of {wanted}")
        missing = [name for name in outputs if name not in given]
        if missing:
            raise ValueError(f"the server gave no output {missing[0]!r}; it gave {', '.join(given) or 'none'}")
        return given

    def _error(self, error: grpc.RpcError, timeout_s: float) -> ModelError:
        found = status_of(error, timeout_s)
        count = self._failures.count(time.monotonic_ns())
        if count:
            remote = self._remote
            log.warning("remote_failed", url=remote.url, remote_model=remote.model, calls=count, error=str(error))
        self._late = self._late + 1 if found.code == DEADLINE_EXCEEDED else 0
        if self._late >= _MOST_LATE:  # a peer that is gone without a word would never be noticed
            self._late = 0
            self._connect()
        return found


def _counts_rows(specs: tuple[TensorSpec, ...], described: Described) -> bool:
    return described.max_batch_size != 0 and all(spec.shape[:1] == (-1,) for spec in specs)
