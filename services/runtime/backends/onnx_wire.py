"""The one thing about a graph that onnxruntime does not tell: which inputs declare no shape, as if they were scalars.

Read from the file's protobuf: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_GRAPH, _INPUT, _NAME, _TYPE, _TENSOR, _SHAPE = 7, 11, 1, 2, 1, 2  # of Model, Graph, ValueInfo twice, Type, Tensor


class _Span(NamedTuple):
    """Where a message lies in the file."""

    start: int
    end: int


def without_shape(artifact: Path) -> set[str]:
    """The names of inputs that have no shape. Raises ValueError or IndexError on what is no protobuf."""
    with artifact.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        names = set()
        for graph in _fields(data, _Span(0, len(data)), _GRAPH):
            for value in _fields(data, graph, _INPUT):
                name = b"".join(data[span.start : span.end] for span in _fields(data, value, _NAME))
                if not _has_shape(data, value):
                    names.add(name.decode())
        return names


def _has_shape(data: mmap.mmap, value: _Span) -> bool:
    return any(
        True
        for kind in _fields(data, value, _TYPE)
        for tensor in _fields(data, kind, _TENSOR)
        for _ in _fields(data, tensor, _SHAPE)
    )


def _fields(data: mmap.mmap, message: _Span, wanted: int) -> Iterator[_Span]:
    """The fields of a message that have the number `wanted` and a length; the others are passed over unread."""
    at = message.start
    while at < message.end:
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:  # varint
                _, at = _varint(data, at)
            case 1:  # 64 bits
                at += 8
            case 2:  # length and bytes
                size, at = _varint(data, at)
                if tag >> 3 == wanted:
                    yield _Span(at, at + size)
                at += size
            case 5:  # 32 bits
                at += 4
            case kind:
                raise ValueError(f"wire type {kind} at byte {at}")


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
