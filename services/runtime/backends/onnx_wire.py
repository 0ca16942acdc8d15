"""What about a graph onnxruntime does not tell, or only once it is loaded: sizes of inputs, how many nodes there are.

Read from the file's protobuf: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_GRAPH, _NODE, _WEIGHT, _INPUT, _PLACE = 7, 1, 5, 11, 14  # of Model, Graph three times, Tensor
_NAME, _TYPE, _TENSOR, _SHAPE, _SIZE, _VALUE = 1, 2, 1, 2, 1, 1  # of ValueInfo twice, Type, Tensor, Shape, Dimension
_VARINT, _BYTES = 0, 2


class _Span(NamedTuple):
    """Where a message lies in the file, or a number."""

    start: int
    end: int


class Outline(NamedTuple):
    """Of a graph: its nodes, and for each input whether its sizes are given; None = it has no shape."""

    nodes: int = 0
    inputs: dict[str, tuple[bool, ...] | None] = {}
    has_external_data: bool = False

    @property
    def has_free_sizes(self) -> bool:
        """Whether rows may differ in size."""
        return any(not all(sizes[1:]) for sizes in self.inputs.values() if sizes is not None)

    @property
    def without_shape(self) -> set[str]:
        """Inputs that declare no shape, as if they were scalars."""
        return {name for name, sizes in self.inputs.items() if sizes is None}


def outline(artifact: Path) -> Outline:
    """The outline of the graph in a file. Raises ValueError or IndexError on what is no protobuf."""
    with artifact.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        nodes, inputs, is_apart = 0, {}, False
        for graph in _fields(data, _Span(0, len(data)), _GRAPH):
            nodes += sum(1 for _ in _fields(data, graph, _NODE))
            for value in _fields(data, graph, _INPUT):
                name = b"".join(data[span.start : span.end] for span in _fields(data, value, _NAME))
                inputs[name.decode()] = _sizes(data, value)
            is_apart = is_apart or any(
                any(_fields(data, weight, _PLACE, _VARINT)) for weight in _fields(data, graph, _WEIGHT)
            )
        return Outline(nodes, inputs, is_apart)


def _sizes(data: mmap.mmap, value: _Span) -> tuple[bool, ...] | None:
    """Whether each size is given as a number; None when there is no shape."""
    for kind in _fields(data, value, _TYPE):
        for tensor in _fields(data, kind, _TENSOR):
            for shape in _fields(data, tensor, _SHAPE):
                return tuple(any(_fields(data, size, _VALUE, _VARINT)) for size in _fields(data, shape, _SIZE))
    return None


def _fields(data: mmap.mmap, message: _Span, wanted: int, kind: int = _BYTES) -> Iterator[_Span]:
    """The fields of a message that have the number `wanted` and this kind; the others are passed over unread."""
    at = message.start
    while at < message.end:
        tag, start = _varint(data, at)
        match tag & 7:
            case 0:
                _, end = _varint(data, start)
            case 1:  # 64 bits
                end = start + 8
            case 2:  # length and bytes
                size, start = _varint(data, start)
                end = start + size
            case 5:  # 32 bits
                end = start + 4
            case found:
                raise ValueError(f"wire type {found} at byte {start}")
        if tag == wanted << 3 | kind:
            yield _Span(start, end)
        at = end


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    """A number, and where the next field begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
