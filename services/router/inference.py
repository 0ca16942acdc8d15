"""One inference request as every protocol means it: what the codecs make and the dispatcher takes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.core.signature import Given

Parameter = bool | int | float | str


class Inference(NamedTuple):
    """What a caller asked for."""

    model: str
    version: str  # version or label; empty = the route decides
    id: str  # echoed in the answer
    parameters: Mapping[str, Parameter]
    inputs: Sequence[Given]
    outputs: Sequence[str]  # names wanted; empty = all that are not given on request only
    size_bytes: int


class Step(NamedTuple):
    """The place of a request in a sequence, for models that keep state from request to request."""

    sequence: int | str  # its id: a number of 64 bits without a sign, or text
    start: bool
    end: bool


NO_PARAMETERS: Mapping[str, Parameter] = {}
