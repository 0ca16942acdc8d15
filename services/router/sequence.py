"""The sequence that a request is part of, for models that keep state from request to request."""

from services.chassis.replicas import Replica, Replicas
from services.core.errors import InvalidRequestError
from services.router.flight import Flight
from services.router.inference import Inference, Step
from services.router.table import Target

_LEAST, _BEYOND = -(1 << 63), 1 << 64
_MOST_CHARACTERS = 128  # of an id


def identify(flight: Flight, inference: Inference) -> None:
    """Read the flight's step of a sequence; where there is no other routing key, the sequence's id is one.

    Raises InvalidRequestError for a parameter of the wrong type.
    """
    parameters = inference.parameters
    name = parameters.get("sequence_id", 0)
    if isinstance(name, str):
        if len(name) > _MOST_CHARACTERS:
            raise InvalidRequestError(
                f"parameter 'sequence_id' has {len(name)} characters; it takes at most {_MOST_CHARACTERS}"
            )
    elif isinstance(name, bool) or not isinstance(name, int) or not _LEAST <= name < _BEYOND:
        raise InvalidRequestError(
            f"parameter 'sequence_id' is {str(name)[:40]}; it takes a whole number of 64 bits, or text"
        )
    else:
        name %= _BEYOND  # a negative number is the one of the same bits
    start, end = _flag(inference, "sequence_start"), _flag(inference, "sequence_end")
    if not name:
        return
    flight.step = Step(name, start, end)
    if not flight.key:
        flight.key = str(name).encode()


def check(flight: Flight) -> None:
    """Raise InvalidRequestError when the chosen version keeps state and the request is no part of a sequence."""
    target = flight.target
    if not target.is_sequential:
        flight.step = None
        return
    if flight.step is None:
        raise InvalidRequestError(
            f"model {target.model}/{target.version} keeps state from request to request: send parameter 'sequence_id' "
            "(a number other than 0, or text), with the first request 'sequence_start' and with the last 'sequence_end'"
        )
    if flight.rows != 1:
        raise InvalidRequestError(
            f"a request of a sequence has 1 row, not {flight.rows}: model {target.model}/{target.version} takes rows "
            "of a sequence one after the other"
        )


def holder(replicas: Replicas, target: Target, step: Step) -> Replica | None:
    """The replica that holds a sequence; None when it can be sent nothing now."""
    return replicas.holder(target.model, target.version, str(step.sequence))


def _flag(inference: Inference, name: str) -> bool:
    value = inference.parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"parameter {name!r} is {str(value)[:40]!r}; it takes true or false")
    return value
