"""How the batches of one signature are read, run and answered."""

import sys
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import NUMPY_DTYPE, decode
from services.core.errors import INVALID_ARGUMENT, RESOURCE_EXHAUSTED
from services.core.signature import Signature
from services.core.tensor import BYTES
from services.runtime.leases import Views
from services.runtime.running import RunBatch
from turnout.v1 import link_pb2 as pb


class BadBatchError(Exception):
    """A batch that was not run: status and what would be right."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def too_large(role: str, name: str, size: int, most: int, of: str = "a batch") -> str:
    """What is wrong with a tensor over the limit."""
    return f"{role} {name!r} of {of} takes {size} bytes, over limits.max_tensor_bytes {most}"


class Way:
    """What a signature says, made ready for its batches."""

    def __init__(self, signature: Signature, run: RunBatch, most_bytes: int = sys.maxsize) -> None:
        self.run = run
        self.most_bytes = most_bytes  # of one tensor
        self.batches = signature.batches
        # None = no plain numpy type: decoded by the slower way.
        self.inputs = {
            spec.name: (spec.datatype, None if spec.datatype in {BYTES, "BF16"} else NUMPY_DTYPE[spec.datatype])
            for spec in signature.inputs
        }
        self.outputs = signature.usual_outputs()
        self.bf16 = frozenset(spec.name for spec in signature.outputs if spec.datatype == "BF16")

    def leave_out(self, inputs: Collection[str], outputs: Collection[str]) -> None:
        """Without what callers neither send nor get."""
        self.inputs = {name: kind for name, kind in self.inputs.items() if name not in inputs}
        self.outputs = [name for name in self.outputs if name not in outputs]

    def read(self, request: pb.Request, views: Views) -> dict[str, NDArray]:
        """The inputs of a batch. Raises BadBatchError."""
        known = self.inputs
        arrays: dict[str, NDArray] = {}
        for tensor in request.inputs:
            name = tensor.name
            if name not in known:
                raise BadBatchError(INVALID_ARGUMENT, f"no input {name!r}; inputs are {', '.join(known)}")
            datatype, dtype = known[name]
            if tensor.datatype != datatype:
                raise BadBatchError(INVALID_ARGUMENT, f"input {name!r} is {datatype}, not {tensor.datatype}")
            shape = tuple(tensor.shape)
            data = views[name][0].data if name in views else tensor.data
            if len(data) > self.most_bytes:
                raise BadBatchError(RESOURCE_EXHAUSTED, too_large("input", name, len(data), self.most_bytes))
            try:
                if dtype is None:
                    arrays[name] = decode(datatype, shape, data)
                else:
                    arrays[name] = np.frombuffer(data, dtype).reshape(shape)
            except ValueError as error:
                raise BadBatchError(INVALID_ARGUMENT, f"input {name!r}: {error}") from None
        if len(arrays) != len(known):
            missing = ", ".join(name for name in known if name not in arrays)
            raise BadBatchError(INVALID_ARGUMENT, f"input {missing} is missing")
        return arrays
