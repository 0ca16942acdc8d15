"""What a SavedModel says of itself: its signatures, and which tensors of its graph they mean."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from services.core.declared import DeclaredTensor
from services.core.signature import TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import BadArtifactError

_USUAL = "serving_default"
_INTERNAL = "__saved_model"  # begins the names of what only loaders use
_SERVE = "serve"
_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    "string": BYTES,
}
UNKNOWN = (-2,)  # the shape of an output that declares none


class Saved(NamedTuple):
    """The graph that is served, out of those in the file."""

    tags: tuple[str, ...]
    signatures: Mapping[str, Any]  # SignatureDef by name


class Ports(NamedTuple):
    """One signature: its inputs and outputs, and the name of each one's tensor in the graph."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    feeds: tuple[str, ...]
    fetches: tuple[str, ...]


def read(artifact: Path) -> Saved:
    """The graph tagged "serve" in a saved_model.pb. Raises BadArtifactError."""
    try:
        saved = saved_model_pb2.SavedModel.FromString(artifact.read_bytes())
    except DecodeError as error:
        size = artifact.stat().st_size
        raise BadArtifactError(
            f"{artifact.name}: expected a SavedModel (protobuf), found {size} bytes that are cut off or something else"
        ) from error
    graphs = {tuple(sorted(graph.meta_info_def.tags)): graph for graph in saved.meta_graphs}
    tagged = [tags for tags in graphs if _SERVE in tags]
    tags = (_SERVE,) if (_SERVE,) in graphs else tagged[0] if len(tagged) == 1 else None
    if tags is None:
        found = ", ".join("+".join(tags) or "no tag" for tags in graphs) or "no graph"
        raise BadArtifactError(f"{artifact.name}: expected one graph tagged {_SERVE!r}, found {found}")
    named = graphs[tags].signature_def
    served = {name: named[name] for name in sorted(named) if not name.startswith(_INTERNAL) and named[name].outputs}
    if not served:
        raise BadArtifactError(f"{artifact.name}: it has no signature: save it with signatures=…")
    return Saved(tags, served)


def chosen(artifact: Path, names: Mapping[str, Any], asked: str) -> str:
    """The signature that answers where a request names none. Raises BadArtifactError."""
    if asked and asked not in names:
        raise BadArtifactError(f"{artifact.name}: signature {asked!r} is asked for; it has {', '.join(names)}")
    if asked or _USUAL in names:
        return asked or _USUAL
    if len(names) > 1:
        raise BadArtifactError(
            f"{artifact.name}: it has no signature {_USUAL!r} but {', '.join(names)}: say signature_name in the model's"
            " spec"
        )
    return next(iter(names))


def ports(artifact: Path, definition: Any, declared: Mapping[str, DeclaredTensor]) -> Ports:
    """One signature; `declared` has shapes for inputs that declare none. Raises BadArtifactError."""
    inputs, outputs = sorted(definition.inputs.items()), sorted(definition.outputs.items())
    return Ports(
        tuple(_input(artifact, name, info, declared.get(name)) for name, info in inputs),
        tuple(TensorSpec(name, _datatype(artifact, "output", name, info), _shape(info)) for name, info in outputs),
        tuple(info.name for _, info in inputs),
        tuple(info.name for _, info in outputs),
    )


def _input(artifact: Path, name: str, info: Any, declared: DeclaredTensor | None) -> TensorSpec:
    datatype, shape = _datatype(artifact, "input", name, info), _shape(info)
    if shape == UNKNOWN and declared is None:
        raise BadArtifactError(
            f"{artifact.name}: input {name!r} has no declared shape: declare it under signature.inputs in the model's"
            " spec, -1 for each size that is free"
        )
    return TensorSpec(name, datatype, declared.shape if shape == UNKNOWN and declared else shape)


def _datatype(artifact: Path, role: str, name: str, info: Any) -> str:
    kind = info.WhichOneof("encoding")
    if kind != "name":
        raise BadArtifactError(f"{artifact.name}: {role} {name!r} is a {kind} of several tensors; expected a dense one")
    found = tf.dtypes.as_dtype(info.dtype).name
    if found not in _DATATYPES:
        raise BadArtifactError(
            f"{artifact.name}: {role} {name!r} is of {found}; expected one of {', '.join(_DATATYPES.values())}"
        )
    return _DATATYPES[found]


def _shape(info: Any) -> tuple[int, ...]:
    if info.tensor_shape.unknown_rank:
        return UNKNOWN
    return tuple(max(-1, int(dim.size)) for dim in info.tensor_shape.dim)
