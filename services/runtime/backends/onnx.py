"""ONNX models through onnxruntime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from services.core.signature import Signature, TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import Arrays, BadArtifactError, Options, refuse_unknown
from services.runtime.backends.onnx_session import open_session
from services.runtime.backends.onnx_shapes import corrected
from services.runtime.backends.onnx_values import run_with_bf16, value
from services.runtime.backends.onnx_wire import Outline, outline
from services.runtime.backends.texts import text_array

_DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": BYTES,
}


class Model:
    """One onnxruntime session. BF16 goes in and comes out as its uint16 words."""

    def __init__(self) -> None:
        self._session: Any = None
        self._outputs: list[str] = []
        self._text: tuple[str, ...] = ()
        self._bf16: frozenset[str] = frozenset()
        self._gives_bf16 = False

    def load(self, artifact: Path, options: Options) -> Signature:
        refuse_unknown(artifact, options.outputs, ())
        outline = _outline(artifact)
        session = open_session(artifact, options, outline)
        inputs = tuple(_spec(artifact, "input", node) for node in session.get_inputs())
        declared = tuple(_spec(artifact, "output", node) for node in session.get_outputs())
        self._session = session
        self._outputs = [spec.name for spec in declared]
        self._text = tuple(spec.name for spec in inputs if spec.datatype == BYTES)
        self._bf16 = frozenset(spec.name for spec in inputs + declared if spec.datatype == "BF16")
        self._gives_bf16 = any(spec.name in self._bf16 for spec in declared)
        if self._text and self._gives_bf16:
            raise BadArtifactError(
                f"{artifact.name}: text goes in and BF16 comes out, and onnxruntime gives both to nobody: cast the"
                " output to FP32"
            )
        if undeclared := sorted(outline.without_shape & {spec.name for spec in inputs}):
            raise BadArtifactError(
                f"{artifact.name}: input {undeclared[0]!r} has no declared shape: export it with one, -1 or a name for"
                " each size that is free"
            )
        outputs = corrected(self.run, inputs, declared)
        batches = all(spec.shape[:1] == (-1,) for spec in inputs + outputs)
        return Signature(inputs, outputs, batches, "onnxruntime_onnx")

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        return self.run_only(inputs, self._outputs)

    def run_only(self, inputs: Arrays, outputs: Sequence[str]) -> dict[str, NDArray]:
        """`outputs` alone: others are computed, but not copied out of onnxruntime."""
        if self._text:
            inputs = {name: text_array(name, array) if name in self._text else array for name, array in inputs.items()}
        if self._gives_bf16:
            return run_with_bf16(self._session, outputs, inputs, self._bf16)
        if self._bf16:
            inputs = {n: value(array, is_bf16=True) if n in self._bf16 else array for n, array in inputs.items()}
        return dict(zip(outputs, self._session.run(outputs, inputs), strict=True))

    def unload(self) -> None:
        self._session = None


def _outline(artifact: Path) -> Outline:
    try:
        return outline(artifact)
    except (ValueError, IndexError):  # an empty or broken file: onnxruntime says what is wrong with it
        return Outline()


def _spec(artifact: Path, role: str, node: Any) -> TensorSpec:
    datatype = _DATATYPES.get(node.type)
    if datatype is None:
        hint = "; convert the classifier with the option zipmap=False" if node.type.startswith("seq(map") else ""
        raise BadArtifactError(
            f"{artifact.name}: {role} {node.name!r} is a {node.type}; expected one of {', '.join(_DATATYPES)}{hint}"
        )
    return TensorSpec(node.name, datatype, tuple(size if isinstance(size, int) else -1 for size in node.shape))
