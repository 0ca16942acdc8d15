"""tf.Example in either form, JSON or protobuf -> tensors: features become the inputs of their names."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from services.core.errors import InvalidRequestError
from services.core.signature import Given, TensorSpec
from services.core.tensor import BYTES, encode_bytes
from services.router.inference import Inference
from services.router.table import Target
from services.router.tfserving.json_values import element_bytes, encode, is_b64
from services.router.tfserving.predict_json import guess, object_of, parameters_of, signature_of
from turnout.tfserving import example_pb2 as pb

_MOST_SHARED_BYTES = 64 << 20  # that a context may come to, once every example has it
_NUMBER_BYTES = 8
Example = Mapping[str, list[Any]]  # feature -> its values: numbers, text, bytes or {"b64": …}


class ExamplesDraft:
    """flight.Draft of examples; each is a row.

    A model whose one input is text, and no feature's name, parses examples itself: it gets them encoded.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def guessed(self) -> list[Given]:
        return [guess(name, values[:1]) for name, values in self.examples[0].items()]

    def bind(self, target: Target, inference: Inference) -> Inference:
        signature = signature_of(target, inference)
        names = self.examples[0].keys()
        specs = {spec.name: spec for spec in signature.inputs}
        if len(specs) == 1 and signature.inputs[0].datatype == BYTES and not names & specs.keys():
            return inference._replace(inputs=[self._encoded(signature.inputs[0])])
        return inference._replace(inputs=[self._feature(name, specs.get(name)) for name in names])

    def _encoded(self, spec: TensorSpec) -> Given:
        data = encode_bytes([encoded(example) for example in self.examples])
        return Given(spec.name, BYTES, [len(self.examples), *[1] * (len(spec.shape) - 1)], data)

    def _feature(self, name: str, spec: TensorSpec | None) -> Given:
        """One feature of all examples as one tensor."""
        rows = []
        for number, example in enumerate(self.examples):
            if name not in example:
                raise InvalidRequestError(f"examples[{number}] has no feature {name!r}, which examples[0] has")
            rows.append(example[name])
        size = len(rows[0])
        for number, row in enumerate(rows):
            if len(row) != size:
                raise InvalidRequestError(
                    f"feature {name!r} has {len(row)} values in examples[{number}], {size} in examples[0]"
                )
        flat = [value for row in rows for value in row]
        if spec is None:
            return guess(name, flat)
        try:
            return Given(name, spec.datatype, [len(rows), *_inner(spec, size)], encode(spec.datatype, flat))
        except (ValueError, OverflowError) as error:
            raise InvalidRequestError(f"feature {name!r}: {error}") from None


def _inner(spec: TensorSpec, size: int) -> list[int]:
    """The shape of `size` values of one example: features are flat, inputs may not be."""
    inner = list(spec.shape[1:])
    if not inner and size == 1:
        return []
    known = prod(each for each in inner if each > 0)
    if inner.count(-1) == 1 and known and size % known == 0:
        return [size // known if each < 0 else each for each in inner]
    return inner if prod(inner) == size and min(inner, default=-1) >= 0 else [size]


def parse_json(model: str, version: str, body: bytes) -> tuple[Inference, ExamplesDraft]:
    """The request in a classify or regress body. Raises InvalidRequestError."""
    request = object_of(body)
    examples, context = request.get("examples"), request.get("context")
    if not isinstance(examples, list) or not examples:
        raise InvalidRequestError("'examples' takes a list of at least one object of features")
    shared = {} if context is None else _features("context", context)
    _check_shared(shared, len(examples))
    found = [{**shared, **_features(f"examples[{number}]", each)} for number, each in enumerate(examples)]
    inference = Inference(model, version, "", parameters_of(request), (), (), len(body))
    return inference, ExamplesDraft(found)


def _features(where: str, given: Any) -> dict[str, list[Any]]:
    if not isinstance(given, dict):
        raise InvalidRequestError(f'{where} is not an object of features, as in {{"age": 30}}')
    return {name: value if isinstance(value, list) else [value] for name, value in given.items()}


def from_input(given: pb.Input) -> ExamplesDraft:
    """The examples of an Input. Raises InvalidRequestError."""
    kind = given.WhichOneof("kind")
    if kind is None:
        raise InvalidRequestError("input has neither example_list nor example_list_with_context")
    listed = getattr(given, kind)
    if not listed.examples:
        raise InvalidRequestError(f"input.{kind} has no examples")
    shared = _values(listed.context) if kind == "example_list_with_context" else {}
    _check_shared(shared, len(listed.examples))
    return ExamplesDraft([{**shared, **_values(example)} for example in listed.examples])


def _check_shared(shared: Example, examples: int) -> None:
    """Raise InvalidRequestError for a context that becomes too much by being part of every example."""
    size = examples * sum(len(name) + sum(map(_size, values), _NUMBER_BYTES) for name, values in shared.items())
    if size > _MOST_SHARED_BYTES:
        raise InvalidRequestError(
            f"the context comes to {size} bytes as part of {examples} examples, over {_MOST_SHARED_BYTES}: send several"
        )


def _size(value: Any) -> int:
    if is_b64(value):
        value = value["b64"]
    return len(value) if isinstance(value, str | bytes) else _NUMBER_BYTES


def _values(example: pb.Example) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        found[name] = list(getattr(feature, kind).value) if kind else []
    return found


def encoded(example: Example) -> bytes:
    """An example as the bytes of a tf.Example: numbers by kind, text and bytes as they are."""
    message = pb.Example()
    for name, values in example.items():
        feature = message.features.feature[name]
        kinds = set(map(type, values))
        try:
            if kinds <= {int, bool}:
                feature.int64_list.value.extend(map(int, values))
            elif kinds <= {int, float}:
                feature.float_list.value.extend(values)
            else:
                feature.bytes_list.value.extend(map(element_bytes, values))
        except (ValueError, OverflowError) as error:
            raise InvalidRequestError(f"feature {name!r}: {error}") from None
    return message.SerializeToString(deterministic=True)
