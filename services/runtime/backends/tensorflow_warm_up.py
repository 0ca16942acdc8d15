"""Requests that a SavedModel brings along for its warm-up, as TensorFlow Serving reads them.

Its file has records of the message PredictionLog, which tensorflow has not; the few fields that count are read here.
https://github.com/tensorflow/serving/blob/master/tensorflow_serving/apis/prediction_log.proto and those it imports.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray
from tensorflow.core.framework import tensor_pb2

from services.core.signature import Signature
from services.runtime.backends import Arrays

_FILE = Path("assets.extra", "tf_serving_warmup_requests")
_REQUEST, _MODEL_SPEC, _INPUTS, _SIGNATURE_NAME = 1, 1, 2, 3  # of *Log, *Request twice, ModelSpec
_KEY, _VALUE = 1, 2  # of an entry of a map
_EXAMPLE_LIST, _EXAMPLES = 1, 1  # of Input, ExampleList
_LENGTH_DELIMITED = 2
_BF16 = tf.bfloat16.as_numpy_dtype


class Logged(IntEnum):
    """What a PredictionLog may hold, by the field's number."""

    CLASSIFY = 2
    REGRESS = 3
    MULTI_INFERENCE = 4
    SESSION_RUN = 5
    PREDICT = 6
    PREDICT_STREAMED = 7


def recorded(folder: Path, signatures: Mapping[str, Signature], usual: str, asked: str) -> Iterator[Arrays]:
    """The inputs of the recorded requests for the signature `asked`; `usual` is that of requests that name none.

    Raises ValueError, or what tensorflow and protobuf raise, at the first that cannot be read.
    """
    file = folder / _FILE
    if not file.is_file():
        return
    for record in tf.compat.v1.io.tf_record_iterator(str(file)):
        kind, request = next((each for each in _fields(record) if each[0] in tuple(Logged)), (0, b""))
        fields = _fields(_only(_fields(request), _REQUEST))
        name = _only(_fields(_only(fields, _MODEL_SPEC)), _SIGNATURE_NAME).decode() or usual
        if name != asked:
            continue
        match kind:
            case Logged.PREDICT:
                yield _tensors([value for number, value in fields if number == _INPUTS])
            case Logged.CLASSIFY | Logged.REGRESS:
                yield _serialized(signatures[name], _only(fields, _INPUTS))
            case _:
                found = Logged(kind).name if kind else "none"
                raise ValueError(f"{_FILE.name}: expected requests to PREDICT, CLASSIFY or REGRESS, found {found}")


def _tensors(entries: list[bytes]) -> dict[str, NDArray]:
    """The inputs of a PredictRequest."""
    arrays = {}
    for entry in map(_fields, entries):
        array = tf.make_ndarray(tensor_pb2.TensorProto.FromString(_only(entry, _VALUE)))
        arrays[_only(entry, _KEY).decode()] = array.view(np.uint16) if array.dtype == _BF16 else array
    return arrays


def _serialized(signature: Signature, given: bytes) -> dict[str, NDArray]:
    """The input of a ClassificationRequest or RegressionRequest: examples, serialized, as the model's one input."""
    found = [value for number, value in _fields(_only(_fields(given), _EXAMPLE_LIST)) if number == _EXAMPLES]
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return {signature.inputs[0].name: array}


def _fields(message: bytes) -> list[tuple[int, bytes]]:
    """Those fields of a message that have a length, by number."""
    found: Any = UnknownFieldSet(Empty.FromString(message))
    return [(each.field_number, each.data) for each in found if each.wire_type == _LENGTH_DELIMITED]


def _only(fields: list[tuple[int, bytes]], number: int) -> bytes:
    """A field that is there once at most."""
    return next((value for each, value in fields if each == number), b"")
