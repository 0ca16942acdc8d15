"""Bodies that are one tensor and nothing else: all that is to be said of it is the model's signature."""

from collections.abc import Sequence
from math import prod

from services.core.errors import InvalidRequestError
from services.core.signature import Given, TensorSpec
from services.core.tensor import BYTES, ELEMENT_BYTES, encode_bytes
from services.router.flight import Flight
from services.router.inference import NO_PARAMETERS, Inference
from services.router.table import Target
from services.router.templates import Template

_MOST = 256  # sizes of tensors and targets that are remembered
Data = bytes | memoryview


class RawTensors:
    """How bodies of a size are sent to a target, checked once."""

    def __init__(self) -> None:
        self._templates: dict[tuple[Target, str, int], Template] = {}

    def template(self, target: Target, inference: Inference, data: Data) -> Template:
        """Raises InvalidRequestError for a body that is no input of this target."""
        key = target, inference.version, len(data)  # who names a version is not mirrored
        template = self._templates.get(key)
        if template is None:
            given = given_of(target, data)
            template = Template(inference._replace(inputs=[given]))
            target.check([given], ())
            if len(self._templates) >= _MOST:
                self._templates.clear()
            self._templates[key] = template
        return template


class RawDraft:
    """Draft of a body that is one tensor."""

    __slots__ = ("_data", "_flight", "_known")

    def __init__(self, flight: Flight, data: Data, known: RawTensors) -> None:
        self._flight = flight
        self._data = data
        self._known = known

    def guessed(self) -> Sequence[Given]:
        return ()  # of an input that has no name yet

    def bind(self, target: Target, inference: Inference) -> Inference:
        flight = self._flight
        specs = target.caller_signature.inputs
        if len(specs) == 1 and specs[0].datatype == BYTES:  # right or wrong by its content
            return inference._replace(inputs=[given_of(target, self._data)])
        template = flight.template = self._known.template(target, inference, self._data)
        flight.data = self._data
        return template.inference


def raw_inference(model: str, version: str, size_bytes: int) -> Inference:
    return Inference(model, version, "", NO_PARAMETERS, (), (), size_bytes)


def given_of(target: Target, data: Data) -> Given:
    """The one input of `target` that `data` is: one row of it, where it has rows. Raises InvalidRequestError."""
    signature = target.caller_signature
    if len(signature.inputs) != 1:
        names = ", ".join(spec.name for spec in signature.inputs) or "none"
        raise InvalidRequestError(
            f"a body that is one tensor needs a model with one input; those of model {target.model} are {names}"
        )
    spec = signature.inputs[0]
    shape = _shape(target, spec, 1 if signature.batches else 0, len(data))
    content = encode_bytes([bytes(data)]) if spec.datatype == BYTES else data
    return Given(spec.name, spec.datatype, shape, content)


def _shape(target: Target, spec: TensorSpec, rows: int, size: int) -> tuple[int, ...]:
    inner = spec.shape[rows:]
    open_ends = [index for index, dimension in enumerate(inner) if dimension < 0]
    if spec.datatype == BYTES:
        shape = tuple(1 if dimension < 0 else dimension for dimension in inner)
        if prod(shape) != 1:
            raise InvalidRequestError(f"a body that is one text is no input of model {target.model}: it takes {spec}")
        return (1,) * rows + shape
    if len(open_ends) > 1:
        raise InvalidRequestError(
            f"a body that is one tensor says no shape, and {len(open_ends)} dimensions of {spec} of model"
            f" {target.model} may be any"
        )
    if not open_ends:
        return (1,) * rows + inner
    each = ELEMENT_BYTES[spec.datatype] * prod(dimension for dimension in inner if dimension >= 0)
    if each == 0 or size % each:
        raise InvalidRequestError(
            f"{size} bytes are no tensor {spec} of model {target.model}: {each} or a multiple are"
        )
    index = open_ends[0]
    return (1,) * rows + inner[:index] + (size // each,) + inner[index + 1 :]
