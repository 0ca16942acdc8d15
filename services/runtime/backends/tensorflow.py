"""SavedModels of TensorFlow 1 and 2.

Both run in a session, as in TensorFlow Serving: it needs the graph and its variables only, where the loader of
TensorFlow 2 needs every Python object that they were saved from, and it takes half as long for a call.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import tensorflow as tf
from numpy.typing import NDArray

from services.core.signature import Signature
from services.runtime.backends import Arrays, BadArtifactError, Options, Run, refuse_unknown
from services.runtime.backends.onnx_shapes import corrected
from services.runtime.backends.tensorflow_signatures import UNKNOWN, Ports, Saved, chosen, ports, read
from services.runtime.backends.tensorflow_warm_up import recorded

_BF16 = tf.bfloat16.as_numpy_dtype
_WORDS = np.dtype("<u2")
_v1 = tf.compat.v1

log = structlog.get_logger()
tf.get_logger().setLevel("ERROR")


class Model:
    """One SavedModel with all its signatures. BF16 goes in and comes out as its uint16 words."""

    def __init__(self) -> None:
        self._session: Any = None
        self._usual: Any = None
        self._runs: dict[str, Run] = {}
        self._folder = Path()
        self._known: dict[str, Signature] = {}

    def load(self, artifact: Path, options: Options) -> Signature:
        refuse_unknown(artifact, options.outputs, ())
        saved = read(artifact)
        usual = chosen(artifact, saved.signatures, options.signature_name)
        found = ports(artifact, saved.signatures[usual], options.declared.inputs if options.declared else {})
        self._session = _open(artifact, saved, options)
        self._usual, signature = _ready(artifact, self._session, usual, found)
        others = []
        for name in [name for name in saved.signatures if name != usual]:
            try:
                runner, other = _ready(artifact, self._session, name, ports(artifact, saved.signatures[name], {}))
            except BadArtifactError as error:
                log.warning("signature_left_out", signature=name, reason=str(error))
                continue
            self._runs[name] = runner.run
            others.append(other)
        self._folder = artifact.parent
        self._known = {each.name: each for each in (signature, *others)}
        return replace(signature, more=tuple(others))

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        answers: dict[str, NDArray] = self._usual.run(inputs)
        return answers

    def runs(self) -> dict[str, Run]:
        return self._runs

    def examples(self, name: str = "") -> Iterator[Arrays]:
        usual = next(iter(self._known))
        return recorded(self._folder, self._known, usual, name or usual)

    def unload(self) -> None:
        session, self._session, self._usual, self._runs = self._session, None, None, {}
        if session is not None:
            session.close()


def _ready(artifact: Path, session: Any, name: str, found: Ports) -> tuple["_Runner", Signature]:
    """What runs a signature, and what it takes and gives. Raises BadArtifactError."""
    runner = _Runner(artifact, session, found)
    outputs = corrected(runner.run, found.inputs, found.outputs)
    unclear = [spec.name for spec in outputs if spec.shape == UNKNOWN]
    if unclear:
        raise BadArtifactError(
            f"{artifact.name}: output {unclear[0]!r} has no declared shape, and the model cannot answer rows of zeros"
            " that would show it"
        )
    counts_rows = bool(found.inputs) and all(spec.shape[:1] == (-1,) for spec in found.inputs + outputs)
    return runner, Signature(found.inputs, outputs, counts_rows, "tensorflow_savedmodel", name=name)


class _Runner:
    """Runs one signature."""

    def __init__(self, artifact: Path, session: Any, found: Ports) -> None:
        fed = dict(zip(found.feeds, [spec.name for spec in found.inputs], strict=True))
        named = list(zip([spec.name for spec in found.outputs], found.fetches, strict=True))
        self._passed = {name: fed[tensor] for name, tensor in named if tensor in fed}  # the graph hands them on
        self._inputs = [spec.name for spec in found.inputs]
        self._outputs = [name for name, tensor in named if tensor not in fed]
        self._bf16 = frozenset(spec.name for spec in found.inputs + found.outputs if spec.datatype == "BF16")
        fetched = [tensor for _, tensor in named if tensor not in fed]
        try:
            for tensor in found.feeds + found.fetches:
                session.graph.get_tensor_by_name(tensor)
            self._call: Callable[..., Sequence[Any]] = session.make_callable(fetched, list(found.feeds))
        except (ValueError, KeyError, TypeError) as error:
            raise BadArtifactError(
                f"{artifact.name}: a signature names what its graph has not; tensorflow says: {error}"
            ) from error

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        arrays = [inputs[name] for name in self._inputs]
        if self._bf16:
            arrays = [
                array.view(_BF16) if name in self._bf16 else array
                for name, array in zip(self._inputs, arrays, strict=True)
            ]
        answers = dict(zip(self._outputs, map(_array, self._call(*arrays)), strict=True))
        for name, given in self._passed.items():
            answers[name] = inputs[given]
        return answers


def _array(answer: Any) -> NDArray:
    """What the session gives for one output: scalars come bare, text as objects of type bytes."""
    if isinstance(answer, np.ndarray):
        return answer.view(_WORDS) if answer.dtype == _BF16 else answer
    if isinstance(answer, bytes | str):
        return np.array(answer, dtype=object)
    return _array(np.asarray(answer))


def _open(artifact: Path, saved: Saved, options: Options) -> Any:
    """A session with the graph and its variables."""
    if options.device == "cuda" and not tf.config.list_physical_devices("GPU"):
        raise BadArtifactError(f"{artifact.name}: a GPU is asked for, and the installed tensorflow sees none")
    graph = tf.Graph()
    settings = _v1.ConfigProto(
        device_count={"GPU": 0 if options.device == "cpu" else 1},
        intra_op_parallelism_threads=options.threads,
        inter_op_parallelism_threads=1,
        allow_soft_placement=True,
        gpu_options=_v1.GPUOptions(allow_growth=True),
    )
    session = _v1.Session(graph=graph, config=settings)
    try:
        with graph.as_default():
            _v1.saved_model.load(session, list(saved.tags), str(artifact.parent))
    except (tf.errors.ResourceExhaustedError, MemoryError):
        session.close()
        raise
    except Exception as error:
        session.close()
        reason = str(error).replace(f"{artifact.parent}/", "").splitlines() or [type(error).__name__]
        raise BadArtifactError(
            f"{artifact.name}: expected a SavedModel with its variables beside it; tensorflow says: {reason[0]}"
        ) from error
    return session
