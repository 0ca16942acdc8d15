from typing import Any

import pytest

from inference import grpc_service_pb2 as pb
from services.core.errors import InvalidRequestError
from services.core.model_spec import ModelSpec
from services.router.codec import ModelInferCodec, parse_request
from services.router.table import Target
from tests.support.puppets import floats, signature
from turnout.v1 import link_pb2


def message(data: bytes = floats(1, 2), *, name: str = "x", shape: tuple[int, ...] = (1, 2), **fields: Any) -> bytes:
    request = pb.ModelInferRequest(model_name="m", **fields)
    request.inputs.add(name=name, datatype="FP32", shape=shape)
    request.raw_input_contents.append(data)
    return request.SerializeToString()


def learnt(*payloads: bytes) -> ModelInferCodec:
    templates = ModelInferCodec()
    for payload in payloads:
        templates.learn(payload, parse_request(payload))
    return templates


def target(**served: Any) -> Target:
    return Target(link_pb2.Served(model="m", version="1", signature=signature(), **served), ModelSpec())


def test_other_data_behind_the_same_header_is_found() -> None:
    found = learnt(message()).find(message(floats(3, 4)))

    assert found is not None
    template, data = found
    assert (template.given[:3], bytes(data)) == (("x", "FP32", (1, 2)), floats(3, 4))
    assert (template.inference.model, template.inference.inputs) == ("m", ())


@pytest.mark.parametrize(
    "other",
    [
        message(name="z"),
        message(shape=(2, 1)),
        message(floats(1, 2, 3)),
        message(model_version="1"),
        message()[:-1],
        b"",
    ],
)
def test_another_header_is_not_found(other: bytes) -> None:
    assert learnt(message()).find(other) is None


def test_more_behind_the_data_is_not_taken_for_data() -> None:
    longer = message(floats(*range(14)), shape=(7, 2))  # a header as long as that of one row, before more data
    behind = b"\x3a\x2e" + bytes(46)  # a second raw_input_contents
    payload = message() + behind
    assert len(payload) == len(longer)

    assert learnt(message(), longer).find(payload) is None


@pytest.mark.parametrize("payload", [message(id="a"), message(b"", shape=(0, 2)), message(name="x" * 2000)])
def test_what_will_not_come_again_is_not_learnt(payload: bytes) -> None:
    assert learnt(payload).find(payload) is None


def test_text_is_not_learnt_as_only_its_content_says_whether_it_is_right() -> None:
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"\1\0\0\0a"])
    request.inputs.add(name="x", datatype="BYTES", shape=[1])
    payload = request.SerializeToString()

    assert learnt(payload).find(payload) is None


def test_what_is_sent_is_the_request_that_protobuf_would_write() -> None:
    found = learnt(message()).find(message(floats(3, 4)))
    assert found is not None
    plan = found[0].plan(target(), found[1])
    fixed = (9).to_bytes() + (77).to_bytes(8, "little") + (41).to_bytes() + (5000).to_bytes(8, "little")

    frame = link_pb2.Frame.FromString(plan.head + fixed + plan.rest + bytes(found[1]))

    expected = link_pb2.Request(id=77, model="m", version="1", rows=1, deadline_us=5000)
    expected.inputs.add(name="x", datatype="FP32", shape=[1, 2], data=floats(3, 4))
    assert list(frame.requests) == [expected]


@pytest.mark.parametrize(
    ("names", "is_whole"),
    [([], True), (["y", "z"], True), (["y"], False), (["z", "y"], False), (["y", "z", "w"], False)],
)
def test_outputs_that_everybody_gets_need_not_be_asked_for(names: list[str], is_whole: bool) -> None:  # noqa: FBT001
    outputs = [pb.ModelInferRequest.InferRequestedOutputTensor(name=name) for name in names]
    given = signature(outputs=[(name, "FP32", (-1, 2)) for name in ("y", "z", "w")])
    given.on_request.append("w")
    served = Target(link_pb2.Served(model="m", version="1", signature=given, max_request_rows=8), ModelSpec())
    found = learnt(message(outputs=outputs)).find(message(floats(3, 4), outputs=outputs))
    assert found is not None

    assert found[0].plan(served, found[1]).is_whole == is_whole


def test_a_request_that_one_version_refuses_is_refused_each_time() -> None:
    payload = message(floats(*range(6)), shape=(3, 2))
    found = learnt(payload).find(payload)
    assert found is not None
    strict = target(max_request_rows=2)

    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="3 rows in one request; model m takes at most 2"):
            found[0].plan(strict, found[1])
    assert found[0].plan(target(), found[1]).rows == 3


def test_no_flood_of_headers_grows_it_without_end() -> None:
    templates = learnt(*(message(name=f"name-{number:05}") for number in range(5000)))

    known = [headers for lengths in templates._templates._known._lengths.values() for headers in lengths.values()]
    assert sum(map(len, known)) <= 2048


def test_a_signature_by_name_is_remembered_too_and_sent_where_it_is_not_the_usual_one() -> None:
    named = {"signature_name": pb.InferParameter(string_param="embed")}
    found = learnt(message(parameters=named)).find(message(floats(3, 4), parameters=named))
    assert found is not None
    template, data = found
    other = signature(outputs=[("e", "FP32", (-1, 3))])
    other.name = "embed"
    usual = signature()
    usual.name = "serving_default"
    usual.more.append(other)
    both = Target(link_pb2.Served(model="m", version="1", signature=usual, max_request_rows=8), ModelSpec())
    only = Target(link_pb2.Served(model="m", version="2", signature=other, max_request_rows=8), ModelSpec())

    assert asked(template, both, data) == "embed"
    assert asked(template, only, data) == ""
    with pytest.raises(InvalidRequestError, match="signature 'embed' is asked for"):
        template.plan(target(), data)


def asked(template: Any, of: Target, data: Any) -> str:
    plan = template.plan(of, data)
    numbers = link_pb2.Request(id=1, deadline_us=1).SerializeToString()
    frame = link_pb2.Frame.FromString(plan.head + numbers + plan.rest + bytes(data))
    return frame.requests[0].signature_name
