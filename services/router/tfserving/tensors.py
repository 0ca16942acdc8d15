"""TensorFlow's TensorProto <-> tensors: tensor_content, or values in the field of their datatype."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from services.core.errors import InternalError, InvalidRequestError
from services.core.protowire import tag
from services.core.signature import Given
from services.core.tensor import BYTES, ELEMENT_BYTES, decode_bytes, element_count, encode_bytes
from turnout.tfserving import tensor_pb2 as pb

CONTENT_TAG = tag(4, 2)  # TensorProto.tensor_content


class Kind(NamedTuple):
    """How elements of one datatype travel: `field` of TensorProto, and `code` of the number in its bytes.

    `packed`: the field's packed form is the tensor's data itself.
    """

    dtype: "pb.DataType"
    field: str
    code: str
    packed: bool = False


KINDS = {
    "FP32": Kind(pb.DT_FLOAT, "float_val", "f", packed=True),
    "FP64": Kind(pb.DT_DOUBLE, "double_val", "d", packed=True),
    "BOOL": Kind(pb.DT_BOOL, "bool_val", "?", packed=True),
    "INT8": Kind(pb.DT_INT8, "int_val", "b"),
    "INT16": Kind(pb.DT_INT16, "int_val", "h"),
    "INT32": Kind(pb.DT_INT32, "int_val", "i"),
    "INT64": Kind(pb.DT_INT64, "int64_val", "q"),
    "UINT8": Kind(pb.DT_UINT8, "int_val", "B"),
    "UINT16": Kind(pb.DT_UINT16, "int_val", "H"),
    "UINT32": Kind(pb.DT_UINT32, "uint32_val", "I"),
    "UINT64": Kind(pb.DT_UINT64, "uint64_val", "Q"),
    "FP16": Kind(pb.DT_HALF, "half_val", "H"),
    "BF16": Kind(pb.DT_BFLOAT16, "half_val", "H"),
    BYTES: Kind(pb.DT_STRING, "string_val", ""),
}
DATATYPE = {kind.dtype: datatype for datatype, kind in KINDS.items()}
VALUE_TAGS = {
    datatype: tag(pb.TensorProto.DESCRIPTOR.fields_by_name[kind.field].number, 2) for datatype, kind in KINDS.items()
}
_MAX_REPEATED_BYTES = 64 << 20  # that one value may be made into, and all of a request's
_MOST_GROWTH = 8  # of values that stand for one element each: a number's byte on the wire is eight at most
_FEW = 16  # values that cost less one by one
_CONTENT = 4


def all_given(tensors: Mapping[str, pb.TensorProto]) -> list[Given]:
    """A request's tensors; the messages may be changed. Raises InvalidRequestError."""
    found, made = [], 0
    for name in tensors:
        tensor = tensors[name]
        usual = _MOST_GROWTH * tensor.ByteSize()
        found.append(each := given(name, tensor))
        made += max(0, len(each.data) - usual)
        if made > _MAX_REPEATED_BYTES:
            raise InvalidRequestError(
                f"input {name!r}: values for many elements make over {_MAX_REPEATED_BYTES} bytes of this request"
            )
    return found


def given(name: str, tensor: pb.TensorProto) -> Given:
    """The tensor that a TensorProto is; the message may be changed. Raises InvalidRequestError."""
    try:
        datatype = _datatype(tensor)
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        return Given(name, datatype, shape, _data(tensor, datatype, shape))
    except ValueError as error:
        raise InvalidRequestError(f"input {name!r}: {error}") from None


def _datatype(tensor: pb.TensorProto) -> str:
    datatype = DATATYPE.get(tensor.dtype)
    if datatype is None:
        raise ValueError(
            f"dtype {_dtype_name(tensor.dtype)} is not served; {', '.join(map(_dtype_name, DATATYPE))} are"
        )
    if tensor.tensor_shape.unknown_rank:
        raise ValueError("tensor_shape has unknown_rank; give its dimensions")
    return datatype


def _dtype_name(dtype: Any) -> str:
    known = pb.DataType.DESCRIPTOR.values_by_number.get(dtype)
    return known.name if known else str(dtype)


def _data(tensor: pb.TensorProto, datatype: str, shape: Sequence[int]) -> bytes:
    kind, count = KINDS[datatype], element_count(shape)
    content: bytes = tensor.tensor_content
    if content:
        if datatype == BYTES:
            raise ValueError("text travels in string_val, not in tensor_content")
        return content  # its length is checked as any protocol's is
    for field, _ in tensor.ListFields():
        if field.number > _CONTENT and field.name != kind.field:
            raise ValueError(f"{_dtype_name(kind.dtype)} is in tensor_content or {kind.field}, not in {field.name}")
    values = getattr(tensor, kind.field)
    if 0 < len(values) < count:
        return _repeated(values, datatype, count)
    if len(values) != count:
        raise ValueError(f"{kind.field} has {len(values)} values; shape {list(shape)} takes {count}, or one for all")
    return _packed(tensor) if kind.packed and count > _FEW else _encoded(values, datatype, kind)


def _repeated(values: Sequence[Any], datatype: str, count: int) -> bytes:
    """Data of fewer values than elements: the last stands for all that follow, so that one stands for all."""
    kind, more = KINDS[datatype], count - len(values)
    size = ELEMENT_BYTES.get(datatype) or 4 + len(values[-1])
    if more * size > _MAX_REPEATED_BYTES:
        raise ValueError(f"one value for {more} elements makes {more * size} bytes, over {_MAX_REPEATED_BYTES}")
    return _encoded(values, datatype, kind) + _encoded(values[-1:], datatype, kind) * more


def _encoded(values: Sequence[Any], datatype: str, kind: Kind) -> bytes:
    if datatype == BYTES:
        return encode_bytes(values)
    try:
        return struct.pack(f"<{len(values)}{kind.code}", *values)
    except struct.error:
        raise ValueError(f"a value of {kind.field} is outside {_dtype_name(kind.dtype)}") from None


def _packed(tensor: pb.TensorProto) -> bytes:
    """The packed form of the only field with values, made in C: what is left of the message without the others."""
    for other in ("dtype", "tensor_shape", "version_number"):
        tensor.ClearField(other)
    tensor.DiscardUnknownFields()
    encoded = tensor.SerializeToString()
    offset = 1
    while encoded[offset] & 128:
        offset += 1
    return encoded[offset + 1 :]


def tensor_proto(name: str, datatype: str, shape: Sequence[int], data: bytes | memoryview) -> pb.TensorProto:
    """An output as TensorFlow Serving writes it: values in the field of their datatype."""
    kind = KINDS.get(datatype)
    if kind is None:
        raise InternalError(f"output {name!r} is {datatype}, which no TensorProto holds")
    dims = [pb.TensorShapeProto.Dim(size=size) for size in shape]
    tensor = pb.TensorProto(dtype=kind.dtype, tensor_shape=pb.TensorShapeProto(dim=dims))
    if datatype == BYTES:
        tensor.string_val.extend(decode_bytes(data))
    else:
        values = np.frombuffer(data, dtype=np.dtype(kind.code).newbyteorder("<"))
        getattr(tensor, kind.field).extend(values.tolist())
    return tensor
