"""A request on its way: everything the router holds of it between first sight and answer."""

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import ClassVar, Protocol

from services.chassis.quick_reply import AnyReply
from services.chassis.replicas import Replica
from services.core.errors import ServingError
from services.core.signature import Given
from services.router.access.caller import Caller
from services.router.inference import Inference, Step
from services.router.table import Entry, Target
from services.router.templates import Template
from turnout.v1 import feature_pb2, tensor_pb2

REQUEST_ID = "x-request-id"
_MAX_ID = 256  # of a request id that is echoed


def request_id_of(headers: Mapping[str, str | bytes]) -> str:
    """The caller's request id, to be echoed; empty when there is none, or one that no header should carry."""
    value = headers.get(REQUEST_ID, "")
    fits = isinstance(value, str) and len(value) <= _MAX_ID and value.isascii() and value.isprintable()
    return str(value) if fits else ""


class Answerer(Protocol):
    """A protocol's codec: writes the outcome of a flight to its caller; exactly one of the two is called."""

    def answer(self, flight: "Flight", reply: AnyReply) -> None: ...
    def fail(self, flight: "Flight", error: ServingError) -> None: ...


class Draft(Protocol):
    """A request whose tensors take their datatypes from the signature of the version that will serve it."""

    def guessed(self) -> Sequence[Given]:
        """The first elements of the inputs, by their own looks: a routing key may be among them."""

    def bind(self, target: Target, inference: Inference) -> Inference:
        """The request for `target`. Raises InvalidRequestError where its values do not fit."""


class Owner(Protocol):
    """Gets what comes back for a flight."""

    def replied(self, flight: "Flight", reply: AnyReply) -> None: ...
    def featured(self, flight: "Flight", answer: feature_pb2.FeatureAnswer) -> None: ...


class Flight:
    """Times are perf_counter_ns readings of this process; `*_ns` stages are durations."""

    __slots__ = (
        "answerer",
        "arm",
        "auth_ns",
        "call_id",
        "caller",
        "carried",
        "certificate",
        "data",
        "deadline_ns",
        "draft",
        "entry",
        "features_ns",
        "filled",
        "headers",
        "held",
        "inference",
        "is_done",
        "key",
        "mark_ns",
        "owner",
        "parse_ns",
        "peer",
        "remote_id",
        "replica",
        "route_ns",
        "rows",
        "sent_ns",
        "started_ns",
        "step",
        "target",
        "template",
        "traceparent",
        "tries",
        "was_resent",
    )

    takes_many: ClassVar[bool] = False  # answers

    entry: Entry
    target: Target
    inference: Inference
    carried: Sequence[Given]  # inputs that only carried the keys of features; set once they are dropped

    def __init__(
        self, owner: Owner, answerer: Answerer, call_id: int, headers: Mapping[str, str | bytes], started_ns: int
    ) -> None:
        self.owner = owner
        self.answerer = answerer
        self.call_id = call_id
        self.headers = headers
        self.started_ns = started_ns
        self.peer = ""  # the caller's address, as its front writes it
        self.certificate = b""  # verified, of the caller; empty = none
        self.caller: Caller | None = None  # once known
        self.held: Caller | None = None  # who counts this flight among its own in flight
        self.mark_ns = started_ns  # the end of the stage before
        self.parse_ns = self.auth_ns = self.route_ns = self.features_ns = 0
        self.sent_ns = 0
        self.deadline_ns = 0
        self.arm = ""
        self.key = b""
        self.rows = 0
        self.tries = 0
        self.replica: Replica | None = None
        self.remote_id = 0
        self.filled: list[tensor_pb2.Tensor] | None = None  # inputs that features gave
        self.template: Template | None = None  # with `data`: the request's one input, instead of inference.inputs
        self.data: bytes | memoryview = b""
        self.draft: Draft | None = None  # until a version is chosen; then it has made `inference`
        self.is_done = False
        self.was_resent = False  # to a second replica, which is the most
        self.step: Step | None = None  # of which sequence, for models that keep state
        self.traceparent = ""  # sent on with the request; empty = its trace is not surely kept

    def replied(self, reply: AnyReply) -> None:
        self.owner.replied(self, reply)

    def featured(self, answer: feature_pb2.FeatureAnswer) -> None:
        self.owner.featured(self, answer)

    def inputs(self) -> Sequence[Given]:
        """The caller's inputs, whichever way they were parsed."""
        if self.draft is not None:
            return self.draft.guessed()
        template = self.template
        return self.inference.inputs if template is None else (template.given._replace(data=bytes(self.data)),)

    def bind(self, draft: Draft) -> tuple[Inference, int]:
        """What a draft is for this flight's target, and the clock after it: the time counts as parsing."""
        began = perf_counter_ns()
        self.inference = draft.bind(self.target, self.inference)
        self.draft = None
        now = perf_counter_ns()
        self.parse_ns += now - began
        return self.inference, now

    @property
    def request_id(self) -> str:
        """The caller's x-request-id, else the id of its request; what logs and other services call it."""
        return request_id_of(self.headers) or self.inference.id

    def header(self, name: str) -> str:
        value = self.headers.get(name, "")
        return value if isinstance(value, str) else value.decode("latin-1")
