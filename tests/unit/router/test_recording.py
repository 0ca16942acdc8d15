"""What is said of a request in a record, and what never is."""

import hashlib
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.chassis.framing import MAX_MESSAGE_BYTES
from services.core.errors import InvalidRequestError
from services.core.model_spec import ModelSpec
from services.core.route_spec import RouteSpec
from services.core.signature import Given
from services.core.split import POINTS
from services.router.choice import Chooser
from services.router.flight import Flight
from services.router.inference import Inference, Step
from services.router.metrics import RouterMetrics
from services.router.recording import Recorders, recorded
from services.router.table import Entry, Target
from turnout.v1 import link_pb2, recorded_pb2, tensor_pb2

SERVED = link_pb2.Served(
    model="m",
    version="1",
    digest="d",
    signature=tensor_pb2.Signature(inputs=[tensor_pb2.TensorSpec(name="x", datatype="INT8", shape=[-1])], batches=True),
)
X = Given("x", "INT8", [2], b"\1\2")


def flight(
    headers: dict[str, str | bytes] | None = None,
    route: dict[str, Any] | None = None,
    key: bytes = b"",
    **inference: Any,
) -> Flight:
    fields = {"model": "m", "version": "", "id": "", "parameters": {}, "inputs": [X], "outputs": (), "size_bytes": 9}
    made = Flight(SimpleNamespace(), SimpleNamespace(), 1, headers or {}, 1_000)  # type: ignore[arg-type]
    spec = ModelSpec.model_validate({"features": [{"view": "v", "entity": "header:x-user", "input": "f"}]})
    target = Target(SERVED, spec)
    wanted = RouteSpec.model_validate({"stable": "1", **(route or {})})
    made.entry = Entry("m", spec, Chooser("m", wanted, "1", {"1"}, {"1"}), {"1": target})
    made.target, made.inference, made.key, made.rows, made.arm = (
        target,
        Inference(**fields | inference),
        key,
        2,
        "stable",
    )
    made.deadline_ns = 2_001_000
    return made


class FakeLink:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.peer = link_pb2.Hello(instance="r")
        self.queued_bytes = 0
        self.sent: list[bytes] = []

    def send_encoded(self, *parts: bytes) -> None:
        self.sent += parts

    @property
    def records(self) -> list[recorded_pb2.Recorded]:
        return [record for part in self.sent for record in link_pb2.Frame.FromString(part).records]


class Bench:
    """Recorders with one link that wants something."""

    def __init__(self, **sampling: Any) -> None:
        self.registry = CollectorRegistry()
        hello = link_pb2.Hello(instance="router-1")
        self.recorders = Recorders(hello, "host", RouterMetrics(self.registry), 1000)
        self.link = FakeLink()
        self.recorders.opened(self.link)  # type: ignore[arg-type]
        self.want(**sampling)

    def want(self, **sampling: Any) -> None:
        wanted = recorded_pb2.Sampling(**{"model": "m", "per_million": POINTS, **sampling})
        self.recorders.received(self.link, link_pb2.Frame(sampling=wanted))  # type: ignore[arg-type]

    def offer(self, given: Flight | None = None, reply: link_pb2.Reply | None = None) -> None:
        self.recorders.offer(given or flight(), reply or link_pb2.Reply(digest="d"), None, 5, (1, 2))

    def dropped(self, reason: str) -> float | None:
        return self.registry.get_sample_value("turnout_record_dropped_total", {"reason": reason})


def test_a_record_says_what_came_what_was_chosen_and_what_was_answered() -> None:
    bench = Bench()
    output = tensor_pb2.Tensor(name="y", datatype="INT8", shape=[2], data=b"\3\4")
    given = flight({"x-request-id": "abc"}, version="champion", outputs=("y",), parameters={"user_id": 7})
    bench.offer(given, link_pb2.Reply(digest="d2", outputs=[output]))
    (record,) = bench.link.records

    assert (record.model, record.version, record.digest, record.arm) == ("m", "1", "d2", "stable")
    assert (record.asked_version, record.request_id, list(record.wanted)) == ("champion", "abc", ["y"])
    assert (record.rows, record.allowed_us, record.total_ns, list(record.stages_ns)) == (2, 2000, 5, [1, 2])
    assert list(record.inputs) == [tensor_pb2.Tensor(name="x", datatype="INT8", shape=[2], data=b"\1\2")]
    assert list(record.outputs) == [output]
    assert record.parameters["user_id"].int_value == 7
    assert (record.code, record.router) == (0, "router-1")
    assert record.at_ns > 1_700_000_000_000_000_000


def test_inputs_that_only_carried_keys_and_those_that_features_filled_are_told_apart() -> None:
    given = flight()
    given.carried = [Given("user", "INT64", [1], bytes(8))]
    given.filled = [tensor_pb2.Tensor(name="f", datatype="FP32", shape=[1], data=bytes(4))]
    record = recorded(given, 1, routing_keys=False)

    assert [tensor.name for tensor in record.inputs] == ["x", "user"]
    assert [tensor.name for tensor in record.filled] == ["f"]


def test_a_failure_is_recorded_with_its_status() -> None:
    bench = Bench()
    bench.recorders.offer(flight(), None, InvalidRequestError("no such input"), 5, ())
    (record,) = bench.link.records

    assert (record.code, record.message, list(record.outputs)) == (3, "no such input", [])


def test_what_failed_before_a_version_was_chosen_is_not_recorded() -> None:
    bench = Bench()
    early = Flight(SimpleNamespace(), SimpleNamespace(), 1, {}, 1)  # type: ignore[arg-type]
    bench.recorders.offer(early, None, InvalidRequestError("what?"), 5, ())

    assert bench.link.records == []


@pytest.mark.parametrize(
    "header", ["authorization", "x-api-key", "cookie", "x-auth-token", "proxy-authorization", "x-secret", "apikey"]
)
def test_credentials_are_never_recorded(header: str) -> None:
    route = {"match": [{"header": header, "equals": "Bearer 1", "version": "1"}], "sticky_by": f"header:{header}"}
    given = flight({header: "Bearer 1"}, route, b"Bearer 1", parameters={"api_key": "Bearer 1", "max_tokens": 5})
    record = recorded(given, 1, routing_keys=True)

    assert b"Bearer" not in record.SerializeToString()
    assert not record.routing_key_hash
    assert list(record.parameters) == ["max_tokens"]


def test_only_headers_that_decide_something_are_recorded() -> None:
    route = {"match": [{"header": "x-beta", "equals": "1", "version": "1"}]}
    headers = {"x-beta": "2", "x-user": b"\xff9", "user-agent": "c", "x-other": "1"}
    record = recorded(flight(headers, route), 1, routing_keys=False)

    assert dict(record.headers) == {"x-beta": "2", "x-user": "\ufffd9"}


@pytest.mark.parametrize("wanted", [False, True])
def test_routing_keys_are_hashed_unless_they_are_asked_for(wanted: bool) -> None:  # noqa: FBT001
    record = recorded(flight({"x-routing-key": "ana"}, None, b"ana"), 1, routing_keys=wanted)

    assert record.routing_key == (b"ana" if wanted else b"")
    assert record.routing_key_hash == hashlib.blake2b(b"ana", digest_size=8).digest()


@pytest.mark.parametrize(
    ("value", "field"),
    [(True, "bool_value"), (-3, "int_value"), (1 << 63, "uint_value"), (0.5, "float_value"), ("a", "string_value")],
)
def test_parameters_keep_their_kind(value: Any, field: str) -> None:
    parameter = recorded(flight(parameters={"p": value}), 1, routing_keys=False).parameters["p"]

    assert parameter.WhichOneof("value") == field
    assert getattr(parameter, field) == value


def test_a_router_stops_by_itself_after_as_many_as_are_wanted() -> None:
    bench = Bench(most=2)
    for _ in range(5):
        bench.offer()

    assert len(bench.link.records) == 2


@pytest.mark.parametrize(("wanted", "count"), [({"version": "2"}, 0), ({"version": "1"}, 1), ({"model": "other"}, 0)])
def test_only_what_is_wanted_is_recorded(wanted: dict[str, str], count: int) -> None:
    bench = Bench(**wanted)
    bench.offer()

    assert len(bench.link.records) == count


def test_outputs_can_be_left_out() -> None:
    bench = Bench(without_outputs=True)
    bench.offer(reply=link_pb2.Reply(digest="d", outputs=[tensor_pb2.Tensor(name="y")]))

    assert list(bench.link.records[0].outputs) == []


def test_a_share_is_a_share_of_requests_and_of_whole_sequences() -> None:
    bench = Bench(per_million=POINTS // 2)
    for _ in range(200):
        bench.offer()
    alone = len(bench.link.records)
    for sequence in range(1, 101):
        for _ in range(2):
            step = flight(key=str(sequence).encode(), parameters={"sequence_id": sequence})
            step.step = Step(sequence, start=False, end=False)
            bench.offer(step)
    sequences = [record.parameters["sequence_id"].int_value for record in bench.link.records[alone:]]

    assert 50 < alone < 150
    assert 50 < len(sequences) < 150
    assert all(sequences.count(sequence) == 2 for sequence in sequences)


def test_what_a_link_has_no_room_for_is_dropped_counted_and_told() -> None:
    bench = Bench()
    bench.link.queued_bytes = 1001
    bench.offer()
    bench.offer()
    bench.link.queued_bytes = 1000
    bench.offer()

    assert [record.dropped for record in bench.link.records] == [2]
    assert bench.dropped("queue_full") == 2


def test_a_record_that_no_link_takes_is_dropped() -> None:
    bench = Bench()
    bench.offer(flight(inputs=[Given("x", "INT8", [1], bytes(MAX_MESSAGE_BYTES))]))

    assert bench.link.records == []
    assert bench.dropped("too_large") == 1


def test_what_cannot_be_written_harms_nobody() -> None:
    bench = Bench()
    bench.offer(flight(parameters={"p": "\ud800"}))
    bench.offer(flight(parameters={"p\ud800": 1}))
    bench.offer()

    assert bench.dropped("failed") == 2
    assert len(bench.link.records) == 1


def test_nothing_is_wanted_before_it_is_said_and_after_the_link_is_closed() -> None:
    bench = Bench()
    bench.want(model="m2")
    before = bench.registry.get_sample_value("turnout_recorders")
    bench.offer()
    bench.recorders.closed(bench.link, "gone")  # type: ignore[arg-type]

    assert bench.link.records == []
    assert (before, bench.registry.get_sample_value("turnout_recorders")) == (1, 0)
    assert bench.recorders.wishes == {}
