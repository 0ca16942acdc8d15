"""A model that torch can run, whatever file it comes from: what its forward takes, and how it is called."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from services.core.declared import DeclaredSignature
from services.core.signature import TensorSpec
from services.runtime.backends import BadArtifactError

_INTEGERS = ("INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8")
NUMBERS = {"BOOL": ("BOOL",), "INT64": _INTEGERS, "FP64": ("FP64", "FP32")}


class Argument(NamedTuple):
    """One argument of forward; None is what the artifact does not tell."""

    name: str
    datatype: str | None = None
    shape: tuple[int, ...] | None = None
    is_optional: bool = False
    is_number: bool = False  # an int, float or bool instead of a tensor
    is_example: bool = False  # datatype and shape are those of a single example


class Program(NamedTuple):
    """`call` takes the values of all arguments in their order, or some by their names, and gives what forward gives."""

    arguments: tuple[Argument, ...]
    call: Callable[..., Any]
    platform: str
    may_write: bool = True  # may it change its inputs, or keep them?
    renew: Callable[[], Callable[..., Any]] | None = None  # a call that remembers nothing; None = none ever does


class Input(NamedTuple):
    """One input of the signature and the argument that it becomes."""

    spec: TensorSpec
    argument: Argument


def inputs_of(artifact: Path, arguments: Sequence[Argument], declared: DeclaredSignature | None) -> list[Input]:
    """The inputs in the order of forward's arguments. Raises BadArtifactError saying what must be declared, and how."""
    specs = declared.input_specs() if declared is not None else ()
    by_position = dict(zip(positions(artifact, [a.name for a in arguments], specs, "input"), specs, strict=True))
    found = []
    for position, argument in enumerate(arguments):
        spec = by_position.get(position)
        if spec is not None:
            found.append(Input(_fitted(artifact, argument, spec), argument))
        elif argument.is_optional:
            continue
        elif argument.datatype is not None and argument.shape is not None:
            found.append(Input(TensorSpec(argument.name, argument.datatype, argument.shape), argument))
        else:
            raise BadArtifactError(_undeclared(artifact, arguments, argument))
    return found


def positions(artifact: Path, names: Sequence[str], declared: Sequence[TensorSpec], role: str) -> list[int]:
    """Which of `names` each declared tensor is: by its name, by a number at its end (`INPUT__0`), or as they follow."""
    wanted = [spec.name for spec in declared]
    if all(name in names for name in wanted):
        return [names.index(name) for name in wanted]
    numbers = [name.rpartition("__")[2] for name in wanted]
    if all(number.isdecimal() for number in numbers):
        found = [int(number) for number in numbers]
    else:
        found = list(range(len(wanted)))
    if len(set(found)) < len(found) or max(found) >= len(names):
        raise BadArtifactError(
            f"{artifact.name}: the signature declares {role}s {', '.join(wanted)}; the model's are"
            f" {', '.join(names) or 'none'}"
        )
    return found


def _fitted(artifact: Path, argument: Argument, declared: TensorSpec) -> TensorSpec:
    """The declared tensor; where the artifact tells something itself, as far as that is free."""
    known, shape = argument.datatype, argument.shape
    if argument.is_number and known is not None:
        if declared.datatype in NUMBERS[known] and declared.shape in {(), (1,)}:
            return declared
        raise BadArtifactError(
            f"{artifact.name}: the signature declares input {declared}; {argument.name!r} is one number: expected"
            f" {known}[] or [1]"
        )
    if known is None or shape is None or argument.is_example:
        return declared
    return TensorSpec(declared.name, known, shape)  # what is declared is held against it by who asked


def _undeclared(artifact: Path, arguments: Sequence[Argument], first: Argument) -> str:
    untold = [argument.name for argument in arguments if argument.datatype is None and not argument.is_optional]
    example = ", ".join(f'"{name}": {{"datatype": "FP32", "shape": [-1, 4]}}' for name in untold)
    return (
        f"{artifact.name}: the artifact does not tell the datatype and shape of input {first.name!r}: declare all such"
        f' inputs in the model\'s spec, like "signature": {{"inputs": {{{example}}}}}, with -1 for any size'
    )
