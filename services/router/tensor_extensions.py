"""What a request may ask for of single tensors: inputs and outputs in shared memory, outputs classified.

The same for every protocol: a codec fills `Inference.extras` by `extras_of`, the dispatcher does what they say.
"""

from collections.abc import Callable, Mapping

import structlog

from services.chassis.quick_reply import AnyReply, whole
from services.core.errors import InternalError, InvalidRequestError, ServingError, TooLargeError
from services.core.signature import Given
from services.router.classification import classified
from services.router.flight import Flight
from services.router.inference import CLASSIFICATION, OFFSET, REGION, SIZE, Inference, Parameter
from services.router.regions import Region, Regions
from services.router.table import Target
from turnout.v1 import link_pb2

log = structlog.get_logger()


class TensorExtensions:
    """Acts on requests with Extras, and on their answers."""

    def __init__(self, regions: Regions, max_message_bytes: int) -> None:
        self.regions = regions
        self._max_message_bytes = max_message_bytes

    def take(self, inference: Inference) -> Inference:
        """The request with its inputs read from shared memory, all else that it asks for checked.

        Raises ServingError.
        """
        extras = inference.extras
        if extras is None:
            return inference
        extras.targets = {
            name: _place(self.regions, "output", name, said) for name, said in extras.outputs.items() if REGION in said
        }
        for name, said in extras.outputs.items():
            if REGION not in said:
                _whole_number(name, CLASSIFICATION, said)
        if not extras.inputs:
            return inference
        places = {name: _place(self.regions, "input", name, said) for name, said in extras.inputs.items()}
        size_bytes = inference.size_bytes + sum(length for _, _, length in places.values())
        if size_bytes > self._max_message_bytes:
            raise TooLargeError(
                f"the request has {size_bytes} bytes with those in shared memory; this router takes"
                f" {self._max_message_bytes}"
            )
        inputs = [_read(given, places) for given in inference.inputs]
        return inference._replace(inputs=inputs, size_bytes=size_bytes)

    def give(self, flight: Flight, reply: AnyReply, fail: Callable[[Flight, ServingError], None]) -> AnyReply | None:
        """The answer as it was asked for; None when that fails, which then is the flight's outcome."""
        try:
            return self.answered(flight.inference, flight.target, whole(reply))
        except ServingError as error:
            fail(flight, error)
        except Exception:
            log.exception("answer_failed", model=flight.target.model)
            fail(flight, InternalError("internal error"))
        return None

    def answered(self, inference: Inference, target: Target, reply: link_pb2.Reply) -> link_pb2.Reply:
        """`reply` as it was asked for; outputs that went to shared memory are empty, and stand in `extras.placed`.

        Raises InvalidRequestError, when one does not fit where it should go.
        """
        extras = inference.extras
        if extras is None:
            return reply
        answer = link_pb2.Reply()
        answer.CopyFrom(reply)  # mirrors and recorders have the model's own
        for output in answer.outputs:
            said = extras.outputs.get(output.name)
            if said is None:
                continue
            if output.name in extras.targets:
                extras.placed[output.name] = _write(output.name, extras.targets[output.name], output.data)
                output.data = b""
            else:
                k = _whole_number(output.name, CLASSIFICATION, said)
                labels = target.labels.get(output.name, ())
                output.CopyFrom(classified(output, k, labels, batches=target.signature.batches))
        return answer


Place = tuple[Region, int, int]  # offset in it, bytes


def _place(regions: Regions, kind: str, name: str, said: Mapping[str, Parameter]) -> Place:
    region_name = said[REGION]
    if not isinstance(region_name, str):
        raise InvalidRequestError(f"{kind} {name!r}: {REGION} is {region_name!r}; it takes the name of a region")
    region = regions.named(region_name)
    offset = _whole_number(name, OFFSET, said, least=0) if OFFSET in said else 0
    length = _whole_number(name, SIZE, said)
    region.check_part(offset, length)
    return region, offset, length


def _read(given: Given, places: Mapping[str, Place]) -> Given:
    place = places.get(given.name)
    if place is None:
        return given
    if len(given.data):
        raise InvalidRequestError(f"input {given.name!r} has both data and {REGION}: give one of them")
    region, offset, length = place
    return given._replace(data=region.read(offset, length))


def _write(name: str, place: Place, data: bytes) -> dict[str, Parameter]:
    """What the answer says of an output that went to shared memory."""
    region, offset, length = place
    if len(data) > length:
        raise InvalidRequestError(
            f"output {name!r} has {len(data)} bytes, and {SIZE} lets it have {length} of region {region.name!r}"
        )
    region.write(offset, data)
    placed: dict[str, Parameter] = {REGION: region.name, SIZE: len(data)}
    return placed | ({OFFSET: offset} if offset else {})


def _whole_number(tensor: str, key: str, said: Mapping[str, Parameter], least: int = 1) -> int:
    value = said.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
        raise InvalidRequestError(f"tensor {tensor!r}: {key} is {value!r}; it takes a whole number, {least} or more")
    return value
