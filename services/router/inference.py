"""One inference request as every protocol means it: what the codecs make and the dispatcher takes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from services.core.errors import InvalidRequestError
from services.core.signature import Given
from services.router.regions import Region

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"
CLASSIFICATION = "classification"

Parameter = bool | int | float | str
Described = Iterable[tuple[str, Mapping[str, Parameter]]]  # tensors by name, with what is said of them


@dataclass(slots=True, eq=False)
class Extras:
    """What few requests say of single tensors, by name: where one lies, how one is answered. See tensor_extensions."""

    inputs: Mapping[str, Mapping[str, Parameter]]  # those in shared memory
    outputs: Mapping[str, Mapping[str, Parameter]]  # those to go there, or to be classified
    targets: Mapping[str, tuple[Region, int, int]] = field(default_factory=dict)  # where outputs are to go
    placed: dict[str, Mapping[str, Parameter]] = field(default_factory=dict)  # of the answer: outputs that went there


class Inference(NamedTuple):
    """What a caller asked for."""

    model: str
    version: str  # version or label; empty = the route decides
    id: str  # echoed in the answer
    parameters: Mapping[str, Parameter]
    inputs: Sequence[Given]
    outputs: Sequence[str]  # names wanted; empty = all that are not given on request only
    size_bytes: int
    extras: Extras | None = None  # None for nearly all


class Step(NamedTuple):
    """The place of a request in a sequence, for models that keep state from request to request."""

    sequence: int | str  # its id: a number of 64 bits without a sign, or text
    start: bool
    end: bool


NO_PARAMETERS: Mapping[str, Parameter] = {}
NOWHERE: Mapping[str, Mapping[str, Parameter]] = {}


def extras_of(inputs: Described, outputs: Described) -> Extras | None:
    """What is asked for of single tensors; None when it is nothing. Raises InvalidRequestError."""
    lying = {name: said for name, said in inputs if REGION in said}
    asked = {name: said for name, said in outputs if REGION in said or said.get(CLASSIFICATION, 0) != 0}
    if not lying and not asked:
        return None
    for name, said in asked.items():
        if REGION in said and CLASSIFICATION in said:
            raise InvalidRequestError(f"output {name!r} has both {CLASSIFICATION} and {REGION}: give one of them")
    return Extras(lying, asked)
