"""Arrays to tensors and back, and names for what a model gives."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

DATATYPES = {
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.uint16: "UINT16",
    torch.uint32: "UINT32",
    torch.uint64: "UINT64",
    torch.int8: "INT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.float16: "FP16",
    torch.bfloat16: "BF16",
    torch.float32: "FP32",
    torch.float64: "FP64",
}
_NUMBERS = {bool: np.bool_, int: np.int64, float: np.float64}
ToValue = Callable[[NDArray], Any]

with warnings.catch_warnings():  # torch warns once a process that inputs are read-only: who would write gets copies
    warnings.simplefilter("ignore")
    torch.from_numpy(np.frombuffer(b"0", np.uint8))


class OutputError(ValueError):
    """A model gives what is no tensor of the Open Inference Protocol; the message names the output."""


def to_tensor(array: NDArray) -> torch.Tensor:
    """A tensor in the array's own memory, which the model must not write to."""
    return torch.from_numpy(array)


def to_copy(array: NDArray) -> torch.Tensor:
    """A tensor that the model may change and keep."""
    return torch.from_numpy(array.copy())


def of_words(convert: ToValue) -> ToValue:
    """`convert` for BF16, which comes as its uint16 words."""
    return lambda array: convert(array).view(torch.bfloat16)


def to_number(array: NDArray) -> Any:
    """The only element, as Python's own number."""
    return array.item()


def to_array(name: str, value: Any) -> NDArray:
    """One output, BF16 as its uint16 words. Raises OutputError."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in DATATYPES or value.layout != torch.strided:
            layout = "" if value.layout == torch.strided else f" in layout {value.layout}"
            raise OutputError(
                f"output {name!r} is {value.dtype}{layout}; expected one of {', '.join(map(str, DATATYPES))}"
            )
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            value = value.contiguous().view(torch.uint16)
        array: NDArray = value.numpy()
        return array
    dtype = _NUMBERS.get(type(value))
    if dtype is None:
        raise OutputError(f"output {name!r} is a {_described(value)}; expected a tensor: nothing may be nested")
    return np.asarray(value, dtype)


def parts(answer: Any) -> Iterator[tuple[str, Any]]:
    """What a model gives, by name: keys of a dict, fields of a NamedTuple, `output_0` … of a tuple or list, `output`.

    What is None is left out.
    """
    if isinstance(answer, Mapping):
        pairs = [(str(key), value) for key, value in answer.items()]
    elif isinstance(answer, tuple) and hasattr(answer, "_fields"):
        pairs = list(zip(answer._fields, answer, strict=True))
    elif isinstance(answer, tuple | list):
        pairs = [(f"output_{position}", value) for position, value in enumerate(answer)]
    else:
        pairs = [("output", answer)]
    return ((name, value) for name, value in pairs if value is not None)


def datatype_of(value: Any, array: NDArray) -> str:
    """Of an output that `to_array` took."""
    if isinstance(value, torch.Tensor):
        return DATATYPES[value.dtype]
    return DATATYPES[torch.from_numpy(array).dtype]


def _described(value: Any) -> str:
    name = type(value).__name__
    return f"{name} of {type(next(iter(value))).__name__}" if isinstance(value, tuple | list) and value else name
