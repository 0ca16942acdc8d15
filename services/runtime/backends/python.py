"""Models that are code: a file model.py with a class `Model`, for pre- and post-processing and ensembles.

    # /// script
    # requires-python = ">=3.11"
    # dependencies = ["numpy>=2"]
    # ///
    import numpy as np

    class Model:
        inputs = {"text": ("BYTES", [-1])}
        outputs = {"length": ("INT64", [-1])}

        def load(self, folder):
            "Once, before the first batch; `folder` (pathlib.Path) has the other files of this version."

        def predict(self, inputs):
            return {"length": [len(text) for text in inputs["text"]]}

        def unload(self):
            "Once, after the last batch."

`inputs` and `outputs` name a datatype of the Open Inference Protocol and a shape, -1 for any size; where each begins
with -1, that dimension counts rows and requests are batched (`batches = False` says no). predict takes read-only
arrays by name, BYTES as objects of type bytes and BF16 as its uint16 words, and gives an array or list for each
output. Where predict is a generator (def or async def), it yields such a dict for each answer to one request, of any
number, and requests are not batched. `load` and `unload` may be absent. The comment on top is Python's own way to note
requirements (PEP 723): they are checked before the file runs.
"""

import inspect
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import NUMPY_DTYPE
from services.core.signature import Signature, TensorSpec
from services.core.tensor import BYTES, DATATYPES
from services.runtime.backends import Arrays, BadArtifactError, Options, refuse_unknown
from services.runtime.backends.python_file import definition

_CLASS = "Model"


class Model:
    """One object of the file's class."""

    def __init__(self) -> None:
        self._model: Any = None
        self._inputs: dict[str, np.dtype | None] = {}  # None = BYTES
        self._outputs: dict[str, np.dtype | None] = {}
        self._is_decoupled = False

    def load(self, artifact: Path, options: Options) -> Signature:
        if not options.trusted:
            raise BadArtifactError(
                f"{artifact.name} is code and would run when loaded: set trusted in the model's spec if you know"
                " where it comes from"
            )
        refuse_unknown(artifact, options.outputs, ())
        made = definition(artifact, _CLASS)
        if not isinstance(made, type):
            raise BadArtifactError(f"{artifact.name}: expected a class {_CLASS}, found none")
        inputs, outputs = (_specs(artifact, made, role) for role in ("inputs", "outputs"))
        predict = getattr(made, "predict", None)
        if not callable(predict):
            raise BadArtifactError(f"{artifact.name}: expected class {_CLASS} to have predict(inputs), found none")
        decoupled = options.decoupled or inspect.isgeneratorfunction(predict) or inspect.isasyncgenfunction(predict)
        model = made()
        if callable(getattr(model, "load", None)):
            model.load(artifact.parent)
        self._model = model
        self._inputs, self._outputs = ({s.name: _dtype(s.datatype) for s in specs} for specs in (inputs, outputs))
        counts_rows = all(spec.shape[:1] == (-1,) for spec in inputs + outputs)
        batches = counts_rows and not decoupled and bool(getattr(made, "batches", True))
        self._is_decoupled = decoupled
        return Signature(inputs, outputs, batches, "python", decoupled=decoupled)

    def stream(self, inputs: Arrays) -> Iterator[dict[str, NDArray]] | AsyncIterator[dict[str, NDArray]]:
        given = self._model.predict(inputs)
        if hasattr(given, "__aiter__"):
            return self._each_later(given)
        if isinstance(given, Mapping):
            return iter([self._part(given)])
        if not isinstance(given, Iterable | None):
            raise TypeError(f"predict gave a {type(given).__name__}; expected a generator, or a list of dicts")
        return self._each(given or ())

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        if self._is_decoupled:
            return self._first(inputs)
        given = self._model.predict(inputs)
        if not isinstance(given, Mapping):
            raise TypeError(f"predict gave a {type(given).__name__}; expected a dict with {', '.join(self._outputs)}")
        answers = {}
        for name, dtype in self._outputs.items():
            if name not in given:
                raise ValueError(f"predict gave no output {name!r}; it gave {', '.join(map(str, given)) or 'none'}")
            answers[name] = _array(name, given[name], dtype)
        return answers

    def _first(self, inputs: Arrays) -> dict[str, NDArray]:
        """The first answer, if there is one. An async generator is left alone: it is for the loop that will serve."""
        answers = self.stream(inputs)
        if isinstance(answers, AsyncIterator):
            return {}
        try:
            return next(answers, {})
        finally:
            _close(answers)

    def _each(self, given: Iterable[Any]) -> Iterator[dict[str, NDArray]]:
        try:
            for answer in given:
                yield self._part(answer)
        finally:
            _close(given)

    async def _each_later(self, given: Any) -> AsyncIterator[dict[str, NDArray]]:
        try:
            async for answer in given:
                yield self._part(answer)
        finally:
            if hasattr(given, "aclose"):
                await given.aclose()

    def _part(self, answer: Any) -> dict[str, NDArray]:
        """One of several answers, which need not have every output."""
        if not isinstance(answer, Mapping):
            raise TypeError(f"predict gave a {type(answer).__name__}; expected dicts with {', '.join(self._outputs)}")
        unknown = [str(name) for name in answer if name not in self._outputs]
        if unknown:
            raise ValueError(f"predict gave output {unknown[0]!r}; declared are {', '.join(self._outputs)}")
        return {name: _array(name, value, self._outputs[name]) for name, value in answer.items()}

    def examples(self) -> Iterator[Arrays]:
        """What the class shows, as arrays."""
        shown = getattr(self._model, "examples", ())
        for example in shown() if callable(shown) else shown:
            yield {
                name: _as_bytes(value) if self._inputs.get(name) is None else np.asarray(value, self._inputs[name])
                for name, value in example.items()
            }

    def unload(self) -> None:
        model, self._model = self._model, None
        if callable(getattr(model, "unload", None)):
            model.unload()


def _close(answers: Any) -> None:
    if hasattr(answers, "close"):
        answers.close()


def _specs(artifact: Path, made: Any, role: str) -> tuple[TensorSpec, ...]:
    declared = getattr(made, role, None)
    if not isinstance(declared, Mapping) or not declared:
        raise BadArtifactError(
            f'{artifact.name}: expected {_CLASS}.{role} like {{"x": ("FP32", [-1, 4])}}, found {declared!r}'
        )
    return tuple(_spec(f"{artifact.name}: {role}[{name!r}]", name, value) for name, value in declared.items())


def _spec(where: str, name: object, value: object) -> TensorSpec:
    match value:
        case (str(datatype), [*shape]) if isinstance(name, str) and all(type(size) is int for size in shape):
            pass
        case _:
            raise BadArtifactError(f'{where}: expected a datatype and a shape like ("FP32", [-1, 4]), found {value!r}')
    if datatype not in DATATYPES:
        raise BadArtifactError(f"{where}: expected one of {', '.join(DATATYPES)}, found {datatype!r}")
    sizes = tuple(size for size in shape if isinstance(size, int))
    if min(sizes, default=0) < -1:
        raise BadArtifactError(f"{where}: expected sizes of -1 (any) or more, found {list(sizes)}")
    return TensorSpec(name, datatype, sizes)


def _dtype(datatype: str) -> np.dtype | None:
    if datatype == BYTES:
        return None
    return np.dtype("<u2") if datatype == "BF16" else NUMPY_DTYPE[datatype]


def _array(name: str, value: Any, dtype: np.dtype | None) -> NDArray:
    if dtype is None:
        return value if isinstance(value, np.ndarray) else np.array(value, dtype=object)
    array = np.asarray(value)
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(f"predict gave output {name!r} as {array.dtype}; declared is {dtype}")
    return array.astype(dtype, copy=False)


def _as_bytes(value: Any) -> NDArray:
    """Text, and objects of type bytes, as the latter."""
    array = np.array(value, dtype=object)
    flat = [element.encode() if isinstance(element, str) else element for element in array.ravel().tolist()]
    array.ravel()[:] = flat
    return array
