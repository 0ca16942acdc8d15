"""What a model gives, found by running it on made-up inputs: programs do not tell names, datatypes and shapes of it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from services.core.declared import DeclaredSignature
from services.core.signature import TensorSpec
from services.runtime.backends import Arrays, BadArtifactError
from services.runtime.backends.torch_program import positions
from services.runtime.backends.torch_values import OutputError, datatype_of, parts, to_array
from services.runtime.synthetic import synthetic

Answer = Callable[[Arrays], Any]
_FREE = (3, 1, 32, 224)  # what free dimensions behind the first are tried as
_ROWS = ((1, 2), (2, 3))  # some programs take two rows at least
_REASON = 300


class Seen(NamedTuple):
    """One output of one run."""

    datatype: str
    shape: tuple[int, ...]


class UnansweredError(Exception):
    """A model raises on made-up inputs; the message has its own."""


class Outputs:
    """The outputs of the signature, taken from what the model gives."""

    def __init__(self, artifact: Path, declared: DeclaredSignature | None) -> None:
        self._artifact = artifact
        self._declared = declared.output_specs() if declared is not None else ()
        self._keys: dict[str, str] | None = None  # output -> its name in what the model gives

    def of(self, answer: Any) -> dict[str, NDArray]:
        """Every output, as arrays. Raises OutputError."""
        given = dict(parts(answer))
        keys = self._keys or self._named(list(given))
        try:
            return {name: to_array(name, given[key]) for name, key in keys.items()}
        except KeyError as missing:
            raise OutputError(f"the model gave no {missing} this time, but {', '.join(given) or 'nothing'}") from None

    def specs(self, run: Answer, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """As made-up inputs show them, or as declared. Raises UnansweredError, or BadArtifactError for no tensors."""
        try:
            shots = list(_shots(run, inputs))
        except UnansweredError:
            if self._declared:
                return self._declared
            raise
        except OutputError as error:
            raise BadArtifactError(f"{self._artifact.name}: {error}") from error
        if any(shot.keys() != shots[0].keys() for shot in shots):
            raise BadArtifactError(
                f"{self._artifact.name}: the model gives other outputs for other sizes of its inputs"
            )
        is_clear = len(shots) > 2 or not _is_free(inputs)
        keys = self._named(list(shots[0]))
        seen = {name: [shot[key] for shot in shots] for name, key in keys.items()}
        return tuple(
            TensorSpec(name, each[0].datatype, _shape([shot.shape for shot in each], is_clear=is_clear))
            for name, each in seen.items()
        )

    def _named(self, given: list[str]) -> dict[str, str]:
        if not given:
            raise OutputError("the model gave nothing; expected tensors")
        wanted = self._declared
        places = positions(self._artifact, given, wanted, "output") if wanted else []
        self._keys = (
            {spec.name: given[at] for spec, at in zip(wanted, places, strict=True)}
            if wanted
            else {name: name for name in given}
        )
        return self._keys


def _shots(run: Answer, inputs: Sequence[TensorSpec]) -> Iterator[dict[str, Seen]]:
    """Outputs for two numbers of rows, and for another size of other free dimensions where there are such."""
    sizes = _FREE if _is_free(inputs) else (1,)
    tries = [(rows, free) for rows in _ROWS for free in sizes]
    reasons = []
    for rows, free in tries:
        try:
            shots = [_shot(run, inputs, count, free) for count in rows]
        except UnansweredError as error:
            reasons.append(error)
            continue
        yield from shots
        for other in sizes:
            if other != free:
                try:
                    yield _shot(run, inputs, rows[0], other)
                except UnansweredError:
                    continue
                return
        return
    raise reasons[0]


def _shot(run: Answer, inputs: Sequence[TensorSpec], rows: int, free: int) -> dict[str, Seen]:
    reason = ""
    for fill in (1, 0):
        given = {spec.name: synthetic(spec, rows if spec.shape[:1] == (-1,) else None, fill, free) for spec in inputs}
        try:
            answer = run(given)
        except Exception as error:  # noqa: BLE001 - whatever the model raises
            lines = str(error).strip().splitlines()
            reason = reason or f"{type(error).__name__}: {lines[-1] if lines else ''}"[:_REASON]
            continue
        found = {}
        for name, value in parts(answer):
            array = to_array(name, value)
            found[name] = Seen(datatype_of(value, array), array.shape)
        return found
    raise UnansweredError(reason)


def _is_free(inputs: Sequence[TensorSpec]) -> bool:
    return any(-1 in spec.shape[1:] for spec in inputs)


def _shape(shapes: Sequence[tuple[int, ...]], *, is_clear: bool) -> tuple[int, ...]:
    """What they have in common; `is_clear`: each free size was tried as two."""
    if len({len(shape) for shape in shapes}) > 1:
        return (-1,) * len(shapes[0])
    return tuple(sizes[0] if is_clear and len(set(sizes)) == 1 else -1 for sizes in zip(*shapes, strict=True))
