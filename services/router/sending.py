"""A flight as a Request on its replica's link."""

from services.chassis.arena import LEAST_BYTES
from services.chassis.replicas import Replica
from services.chassis.streamed import WINDOW_BYTES
from services.core.errors import (
    UNAVAILABLE,
    InvalidRequestError,
    OverloadedError,
    UnavailableError,
    UnimplementedError,
)
from services.core.signature import SIGNATURE_NAME
from services.router import sequence
from services.router.choice import CANARY
from services.router.flight import REQUEST_ID, Flight
from services.router.inference import Inference, Step
from turnout.v1 import feature_pb2, link_pb2, tensor_pb2


def send(flight: Flight, replica: Replica, left_us: int) -> None:
    """Send a flight to `replica`: large tensors through shared memory where it is on this host."""
    template = flight.template
    if template is None or _has_extras(flight):
        _send_message(flight, replica, left_us)
        return
    rows, head, rest, lent, is_whole = template.plan(flight.target, flight.data)
    if not is_whole:
        _send_message(flight, replica, left_us)
        return
    data = flight.data
    if lent is not None:
        block = replica.lend(data)
        if block is not None:
            (head, rest), data = lent, block
    flight.remote_id = replica.send_encoded(rows, head, left_us, rest, data, flight.replied)


def _send_message(flight: Flight, replica: Replica, left_us: int) -> None:
    """Send what no template covers: several inputs, features, parameters, a second try."""
    target, inference = flight.target, flight.inference
    inputs, size_bytes = _tensors(flight, replica)
    if target.is_decoupled:
        request = replica.stream(flight.rows, size_bytes + 200, flight.replied)
        request.credit = WINDOW_BYTES
    else:
        request = replica.request(flight.rows, size_bytes + 200, flight.replied)
    flight.remote_id = request.id
    request.model = target.model
    request.version = target.version
    request.rows = flight.rows
    request.deadline_us = left_us
    request.inputs.extend(inputs)
    if flight.filled is not None:
        request.inputs.extend(flight.filled)
    if inference.outputs:
        request.outputs.extend(inference.outputs)
    if flight.tries:
        request.tries = flight.tries
    if inference.parameters:
        _copy_parameters(request, inference)
        name = signature_name(inference)
        if not target.is_usual(name):
            request.signature_name = name
    if flight.step is not None:
        _copy_step(request, flight.step)
    if flight.traceparent:
        request.traceparent = flight.traceparent
    request.request_id = flight.request_id


def _tensors(flight: Flight, replica: Replica) -> tuple[list[tensor_pb2.Tensor], int]:
    """The caller's inputs, and the bytes of the message that they will be in."""
    tensors, size_bytes = [], flight.inference.size_bytes
    for name, datatype, shape, data in flight.inputs():
        block = replica.lend(data) if len(data) >= LEAST_BYTES else None
        if block is None:
            tensors.append(tensor_pb2.Tensor(name=name, datatype=datatype, shape=shape, data=bytes(data)))
        else:
            place = tensor_pb2.Block.FromString(block)
            tensors.append(tensor_pb2.Tensor(name=name, datatype=datatype, shape=shape, block=place))
            size_bytes -= len(data)
    return tensors, size_bytes


def _copy_parameters(request: link_pb2.Request, inference: Inference) -> None:
    """Triton's request parameters that the batcher acts on, checked before."""
    request.priority = int(inference.parameters.get("priority", 0))
    request.queue_timeout_us = int(inference.parameters.get("timeout", 0))


def _copy_step(request: link_pb2.Request, step: Step) -> None:
    sequence = request.sequence
    if isinstance(step.sequence, int):
        sequence.number = step.sequence
    else:
        sequence.text = step.sequence
    sequence.start, sequence.end = step.start, step.end


def refuse_the_hopeless(flight: Flight, now: int) -> None:
    """Refuse on the batcher's behalf what its last reply says cannot be reached in time."""
    target = flight.target
    wait_ns = target.expected_wait_ns - (now - target.heard_ns)
    if wait_ns > flight.deadline_ns - now:
        raise OverloadedError(
            f"model {target.model}/{target.version} has {wait_ns / 1e6:.0f} ms of work queued; the deadline is in "
            f"{max(0, flight.deadline_ns - now) / 1e6:.0f} ms",
            retry_after_s=wait_ns / 1e9,
        )


def turn_to_stable(flight: Flight) -> bool:
    """Give a canary's request to stable, where the canary's last replica went in this very turn; whether that went.

    Not where features or a sequence are bound to the version, nor where stable takes other inputs.
    """
    if flight.arm != CANARY or flight.step is not None or flight.target.features:
        return False
    try:
        version, arm = flight.entry.chooser.stable()
        target = flight.entry.targets[version]
        if target.features or target.is_decoupled != flight.target.is_decoupled:
            return False
        if flight.template is None:
            inference = flight.inference
            rows = target.check(inference.inputs, inference.outputs, signature_name(inference))
        else:
            rows = flight.template.plan(target, flight.data).rows
    except (InvalidRequestError, UnavailableError):
        return False
    flight.target, flight.arm, flight.rows = target, arm, rows
    return True


def may_run_again(flight: Flight, reply: link_pb2.Reply) -> bool:
    """Whether what one replica did not answer may be sent to another."""
    if reply.code != UNAVAILABLE or flight.was_resent or flight.step is not None:
        return False
    if reply.executed == link_pb2.EXECUTED_YES:
        return False
    return reply.executed != link_pb2.EXECUTED_MAYBE or flight.target.idempotent


def check_kind(flight: Flight) -> None:
    """Raise ServingError when the chosen version is of a kind that this request does not suit."""
    if flight.entry.has_sequences:
        sequence.check(flight)
    target = flight.target
    if not target.is_decoupled:
        return
    if not flight.takes_many:
        raise UnimplementedError(
            f"model {target.model}/{target.version} is decoupled, it answers any number of times: ask by gRPC"
            " ModelStreamInfer or REST generate_stream"
        )
    if flight.inference.extras is not None and flight.inference.extras.targets:
        raise InvalidRequestError(
            f"outputs are to go to shared memory; model {target.model}/{target.version} is decoupled, and its next"
            " answer would overwrite the one before"
        )


def drop_entity_inputs(flight: Flight) -> None:
    """What only carried the keys of entities has served its purpose: the model has no such input."""
    keys = flight.target.entity_inputs
    if keys:
        flight.carried = [given for given in flight.inputs() if given.name in keys]
        inputs = [given for given in flight.inputs() if given.name not in keys]
        flight.inference, flight.template = flight.inference._replace(inputs=inputs), None


def _has_extras(flight: Flight) -> bool:
    """Whether there is more to send than a template's one input."""
    return bool(flight.filled or flight.tries or flight.traceparent or REQUEST_ID in flight.headers)


def retry_after_s(code: int, reply: link_pb2.Reply | feature_pb2.FeatureAnswer) -> float | None:
    if code != UNAVAILABLE:
        return None
    return reply.retry_after_us / 1e6 if reply.retry_after_us else 1.0


def signature_name(inference: Inference) -> str:
    """The signature that a request asks for; empty = the usual one. Raises InvalidRequestError."""
    name = inference.parameters.get(SIGNATURE_NAME, "")
    if not isinstance(name, str):
        raise InvalidRequestError(f"parameter {SIGNATURE_NAME!r} is {name!r}; it takes the name of a signature")
    return name


def check_parameters(inference: Inference) -> None:
    """Raise InvalidRequestError for a parameter of Triton's that has no such value."""
    for name in ("priority", "timeout"):
        value = inference.parameters.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise InvalidRequestError(f"parameter {name!r} is {value!r}; it takes a whole number, 0 to {(1 << 32) - 1}")
