"""What an operator says that a model takes and gives, where the artifact does not tell it, or tells too little."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from services.core.signature import TensorSpec
from services.core.spec import Spec

Size = Annotated[int, Field(ge=-1)]  # -1 = any
Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
]  # fmt: skip


class DeclaredTensor(Spec):
    """One input or output."""

    datatype: Datatype  # of the Open Inference Protocol
    shape: tuple[Size, ...]  # -1 = any size; the row dimension is included where rows are batched


class DeclaredSignature(Spec):
    """Inputs and outputs by name, in the order in which the model takes and gives them."""

    inputs: dict[str, DeclaredTensor] = {}  # {} = as the artifact says
    outputs: dict[str, DeclaredTensor] = {}  # {} = as the artifact says, or as an answer to made-up rows shows
    batches: bool = True  # where dimension 0 is -1 in every tensor it counts rows; false = it does not

    @model_validator(mode="after")
    def _names(self) -> Self:
        if "" in self.inputs or "" in self.outputs:
            raise ValueError("signature: a tensor's name is empty")
        return self

    def input_specs(self) -> tuple[TensorSpec, ...]:
        return _specs(self.inputs)

    def output_specs(self) -> tuple[TensorSpec, ...]:
        return _specs(self.outputs)


def _specs(tensors: dict[str, DeclaredTensor]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, tensor.datatype, tensor.shape) for name, tensor in tensors.items())
