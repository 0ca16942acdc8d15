"""What is read without protobuf is exactly what protobuf reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.batcher.quick_request import (
    BrokenRequest,
    LentRequest,
    QuickRequest,
    RequestReader,
    key_of,
    with_blocks,
)
from services.chassis.quick_reply import QuickReply, ReplyReader, whole
from services.core.known_headers import field_end
from services.core.protowire import tag, varint
from tests.support.lending import Pair
from turnout.v1 import link_pb2 as pb

FIXED = st.integers(0, 2**64 - 1)
DATA = st.binary(min_size=0, max_size=40)
STAGES = st.lists(FIXED, min_size=7, max_size=7)


@st.composite
def replies(draw: st.DrawFn) -> pb.Reply:
    """Often of the common form, often nearly so."""
    reply = pb.Reply(id=draw(FIXED), expected_wait_us=draw(FIXED), total_ns=draw(FIXED), final=True, executed=2)
    reply.stages_ns.extend(draw(st.one_of(STAGES, st.lists(FIXED, max_size=9))))
    reply.code = draw(st.sampled_from([0, 0, 0, 13]))
    reply.batch_rows = draw(st.integers(0, 3))
    reply.retries = draw(st.sampled_from([0, 0, 1]))
    for name in draw(st.sampled_from([["y"], ["y"], ["y", "z"], []])):
        reply.outputs.add(name=name, datatype="FP32", shape=[1, 2], data=draw(DATA))
    return reply


@st.composite
def requests(draw: st.DrawFn) -> pb.Request:
    request = pb.Request(id=draw(FIXED), deadline_us=draw(FIXED), model="m", version="1", rows=draw(st.integers(0, 2)))
    for name in draw(st.sampled_from([["x"], ["x"], ["x", "w"], []])):
        request.inputs.add(name=name, datatype="FP32", shape=[1, 2], data=draw(DATA))
    request.request_id = draw(st.sampled_from(["", "", "a"]))
    request.tries = draw(st.sampled_from([0, 0, 1]))
    return request


def numbers_first(message: pb.Reply | pb.Request, fields: dict[str, bytes], last: str) -> bytes:
    """The message as our hot paths write it: its fixed64 fields (name -> encoded) first, its tensors last."""
    rest, tensors = type(message)(), type(message)()
    rest.CopyFrom(message)
    getattr(tensors, last).extend(getattr(message, last))
    for name in (*fields, last):
        rest.ClearField(name)
    return b"".join(fields.values()) + rest.SerializeToString() + tensors.SerializeToString()


def encoded_reply(reply: pb.Reply) -> bytes:
    fixed = {name: getattr(reply, name).to_bytes(8, "little") for name in ("id", "expected_wait_us", "total_ns")}
    stages = b"".join(number.to_bytes(8, "little") for number in reply.stages_ns)
    return numbers_first(
        reply,
        {
            "id": tag(1, 1) + fixed["id"],
            "expected_wait_us": tag(12, 1) + fixed["expected_wait_us"],
            "total_ns": tag(7, 1) + fixed["total_ns"],
            "stages_ns": tag(6, 2) + varint(len(stages)) + stages,
        },
        "outputs",
    )


def encoded_request(request: pb.Request) -> bytes:
    return numbers_first(
        request,
        {
            "id": tag(1, 1) + request.id.to_bytes(8, "little"),
            "deadline_us": tag(5, 1) + request.deadline_us.to_bytes(8, "little"),
        },
        "inputs",
    )


def framed(number: int, messages: list[bytes]) -> bytes:
    return b"".join(tag(number, 2) + varint(len(message)) + message for message in messages)


@given(sent=st.lists(replies(), max_size=12), behind=st.sampled_from([b"", pb.Frame(cancels=[7]).SerializeToString()]))
def test_replies_read_quickly_are_the_replies_sent(sent: list[pb.Reply], behind: bytes) -> None:
    frame = framed(3, [encoded_reply(reply) for reply in sent]) + behind

    read, stop = ReplyReader().read(frame)

    assert [whole(reply) for reply in read] == sent
    assert frame[stop:] == behind
    for quick, reply in zip(read, sent, strict=True):
        if isinstance(quick, QuickReply):
            assert (quick.id, quick.code, quick.total_ns) == (reply.id, reply.code, reply.total_ns)
            assert (quick.expected_wait_us, list(quick.stages_ns)) == (reply.expected_wait_us, list(reply.stages_ns))
            assert (bytes(quick.data), quick.layout.digest) == (reply.outputs[0].data, reply.digest)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    pair = Pair(tmp_path_factory.mktemp("arena"))
    pair.prove()
    return pair


@given(sent=st.lists(st.tuples(requests(), st.booleans()), max_size=12), behind=st.sampled_from([b"", b"\x20\x07"]))
def test_requests_in_shared_memory_are_read_as_if_they_had_come_along(
    pair: Pair, sent: list[tuple[pb.Request, bool]], behind: bytes
) -> None:
    for number, (request, _) in enumerate(sent, 1):
        request.id = number
    moved = [pair.move(pb.Request.FromString(r.SerializeToString())) if is_lent else r for r, is_lent in sent]
    frame = framed(2, [encoded_request(request) for request in moved]) + behind
    read = RequestReader().read(frame, pair.borrower)
    if read is None:
        read = [with_blocks(request, pair.borrower) for request in pb.Frame.FromString(frame).requests]

    for got, (request, is_lent) in zip(read, sent, strict=True):
        assert not isinstance(got, BrokenRequest)
        assert (got.id, got.deadline_us, got.rows, got.tries) == (
            request.id,
            request.deadline_us,
            request.rows,
            request.tries,
        )
        inputs = [got.layout.given._replace(data=got.data)] if isinstance(got, QuickRequest) else got.inputs
        assert [(t.name, bytes(t.data)) for t in inputs] == [(t.name, t.data) for t in request.inputs]
        assert (got.id in pair.borrower.lent) == bool(is_lent and request.inputs)
        pair.borrower.give_back(got.id)
    assert pair.lender.blocks == 0


def test_the_second_request_in_shared_memory_is_read_quickly_and_without_a_copy(pair: Pair) -> None:
    reader = RequestReader()
    kinds = []
    for number in (1, 2, 3):
        request = pb.Request(id=number, deadline_us=5, model="m", version="1", rows=1)
        request.inputs.add(name="x", datatype="FP32", shape=[1, 1], data=b"abcd")
        (got,) = reader.read(framed(2, [encoded_request(pair.move(request))]), pair.borrower) or ()
        kinds.append(type(got))
        pair.borrower.give_back(number)

    assert kinds == [LentRequest, QuickRequest, QuickRequest]
    assert isinstance(got, QuickRequest)
    assert isinstance(got.data, memoryview)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_request_whose_block_is_not_there_is_read_as_broken(pair: Pair, *, is_known: bool) -> None:
    reader = RequestReader()
    requests = [pb.Request(id=number, deadline_us=5, model="m", version="1", rows=1) for number in (1, 2)]
    for request in requests:
        request.inputs.add(name="x", datatype="FP32", shape=[1, 1], data=b"abcd")
        pair.move(request)
    if is_known:
        reader.read(framed(2, [encoded_request(requests[0])]), pair.borrower)
    requests[1].inputs[0].block.generation += 7
    (got,) = reader.read(framed(2, [encoded_request(requests[1])]), pair.borrower) or ()

    assert isinstance(got, BrokenRequest)
    assert got.id == 2
    assert "not generation" in got.message
    assert 2 not in pair.borrower.lent


@given(sent=st.lists(requests(), max_size=12))
def test_requests_read_quickly_are_the_requests_sent(sent: list[pb.Request]) -> None:
    read = RequestReader().read(framed(2, [encoded_request(request) for request in sent]))

    assert read is not None
    for got, request in zip(read, sent, strict=True):
        assert (got.id, got.deadline_us, got.rows) == (request.id, request.deadline_us, request.rows)
        assert key_of(got) == (request.model, request.version)
        if isinstance(got, QuickRequest):
            (tensor,) = request.inputs
            assert (got.layout.given[:3], bytes(got.data)) == (("x", "FP32", (1, 2)), tensor.data)
            assert (got.tries, got.request_id, got.shadow) == (request.tries, request.request_id, request.shadow)
        else:
            assert got == request


def test_the_second_of_a_kind_is_read_quickly() -> None:
    reply = pb.Reply(id=1, final=True, stages_ns=range(7), total_ns=9, expected_wait_us=1)
    reply.outputs.add(name="y", datatype="FP32", shape=[1, 1], data=b"abcd")
    request = pb.Request(id=1, deadline_us=5, model="m", version="1", rows=1)
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1], data=b"abcd")

    read, _ = ReplyReader().read(framed(3, [encoded_reply(reply)] * 2))
    asked = RequestReader().read(framed(2, [encoded_request(request)] * 2))

    assert [type(each) for each in read] == [pb.Reply, QuickReply]
    assert asked is not None
    assert [type(each) for each in asked] == [pb.Request, QuickRequest]


def test_more_behind_the_data_is_never_taken_for_data() -> None:
    """A second tensor behind a known header makes a message as long as another one whose header is as long."""
    tensor = {"datatype": "FP32", "shape": [1, 1]}
    second = len(pb.Reply(outputs=[{"name": "y", "data": b"efgh", **tensor}]).SerializeToString())
    long_data = bytes(4 + second)
    replies = [pb.Reply(id=1, final=True, stages_ns=range(7), total_ns=9, expected_wait_us=1) for _ in range(3)]
    requests = [pb.Request(id=1, deadline_us=5, model="m", version="1", rows=1) for _ in range(3)]
    for reply, request, datas in zip(replies, requests, [[b"abcd"], [long_data], [b"abcd", b"efgh"]], strict=True):
        for data in datas:
            reply.outputs.add(name="y", data=data, **tensor)
            request.inputs.add(name="x", data=data, **tensor)

    read, _ = ReplyReader().read(framed(3, [encoded_reply(reply) for reply in replies]))
    asked = RequestReader().read(framed(2, [encoded_request(request) for request in requests]))

    assert len(encoded_reply(replies[1])) == len(encoded_reply(replies[2]))
    assert [whole(reply) for reply in read] == replies
    assert type(read[2]) is pb.Reply
    assert asked is not None
    assert type(asked[2]) is pb.Request


def test_a_frame_with_anything_else_is_left_to_protobuf() -> None:
    frame = pb.Frame(requests=[pb.Request(id=1)], cancels=[1]).SerializeToString()

    assert RequestReader().read(frame) is None


@given(content=st.binary(max_size=300), cut=st.integers(0, 310))
def test_a_field_ends_where_its_length_says_or_nowhere(content: bytes, cut: int) -> None:
    message = (tag(2, 2) + varint(len(content)) + content)[:cut]

    place = field_end(message, 0, 18)

    is_whole = cut >= 1 + len(varint(len(content))) + len(content)
    assert place == ((1 + len(varint(len(content))), len(message)) if is_whole else None)


def test_large_requests_are_read_quickly_too_and_without_a_copy() -> None:
    request = pb.Request(id=1, deadline_us=5, model="m", version="1", rows=1)
    request.inputs.add(name="x", datatype="FP32", shape=[1, 100_000], data=bytes(400_000))
    other = pb.Request()
    other.CopyFrom(request)
    other.inputs[0].data = b"\x01" * 400_000
    reader = RequestReader()

    first = reader.read(framed(2, [encoded_request(request)]))
    second = reader.read(framed(2, [encoded_request(other)]))

    assert first == [request]
    assert second is not None
    (quick,) = second
    assert isinstance(quick, QuickRequest)
    assert isinstance(quick.data, memoryview)
    assert bytes(quick.data) == other.inputs[0].data
