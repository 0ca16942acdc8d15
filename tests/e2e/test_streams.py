"""Models that give any number of answers, through the whole mesh, behind both front doors."""

import contextlib
import json
import os
import signal
import zlib
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio

from tests.support.client_process import said_by
from tests.support.mesh import until
from tests.support.streaming import (
    FRONTS,
    TIMEOUT_S,
    Caller,
    StreamMesh,
    count,
    request,
    stream_mesh,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def streams(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StreamMesh]:
    async with stream_mesh(tmp_path_factory.mktemp("streams")) as mesh:
        yield mesh


@pytest_asyncio.fixture(loop_scope="module", params=FRONTS)
async def caller(request: pytest.FixtureRequest, streams: StreamMesh) -> AsyncIterator[Caller]:
    async with streams.caller(request.param) as caller:
        yield caller


async def test_a_request_has_any_number_of_answers_and_is_told_their_end_if_it_asks(caller: Caller) -> None:
    three = await caller.ask(count(3, "a", tell_end=True))
    silent = await caller.ask(count(3, "b"))

    assert [(each.id, each.error, each.values.get("i"), each.is_final) for each in three] == [
        ("a", "", [0], False),
        ("a", "", [1], False),
        ("a", "", [2], False),
        ("a", "", None, True),
    ]
    assert [(each.values["i"], each.is_final) for each in silent] == [([0], False), ([1], False), ([2], False)]
    assert await caller.ask(count(0, "c")) == []
    assert [(each.values, each.is_final) for each in await caller.ask(count(0, "d", tell_end=True))] == [({}, True)]


async def test_an_error_after_answers_is_said_and_the_stream_stays_open(caller: Caller) -> None:
    conversation = caller.open()
    await conversation.say(count(-5, "a"))
    heard = [await conversation.hear() for _ in range(4)]
    await conversation.say(count(1, "b"))
    after = await conversation.hear()
    await conversation.call.done_writing()

    assert [each.values.get("i") for each in heard] == [[0], [1], [2], None]
    assert (heard[3].id, heard[3].error, heard[3].is_final) == ("a", "ValueError: unlucky", True)
    assert (after.id, after.values["i"]) == ("b", [0])
    assert await conversation.call.code() is grpc.StatusCode.OK


async def test_what_is_wrong_with_a_request_is_said_in_its_place(caller: Caller) -> None:
    answers = await caller.ask(
        request("twice", "a", n=1),
        request("nobody", "b", n=1),
        request("count", "c", n=1),
        request("twice", "d", n=2),
    )

    assert [each.id for each in answers] == ["a", "b", "c", "d"]
    assert "model 'nobody' is unknown" in answers[1].error
    assert "needs input 'size' too" in answers[2].error
    assert [answers[at].values for at in (0, 3)] == [{"y": [2]}, {"y": [4]}]


async def test_ordinary_models_answer_in_order_each_answer_being_the_last_of_its_request(caller: Caller) -> None:
    answers = await caller.ask(*(request("twice", str(number), n=number) for number in range(200)))

    assert [(each.id, each.values["y"]) for each in answers] == [(str(n), [2 * n]) for n in range(200)]
    assert all(each.is_final for each in answers)


async def test_answers_of_two_requests_share_a_stream_and_an_ordinary_one_waits_for_neither(caller: Caller) -> None:
    answers = await caller.ask(count(300, "a"), count(300, "b"), request("twice", "c", n=4))
    by_id = {name: [each.values.get("i") for each in answers if each.id == name] for name in "abc"}

    assert by_id["a"] == by_id["b"] == [[number] for number in range(300)]
    assert by_id["c"] == [None]


async def test_ten_thousand_answers_come_whole_and_in_order(caller: Caller) -> None:
    answers = await caller.ask(count(10_000, tell_end=True))

    assert [each.values["i"][0] for each in answers[:-1]] == list(range(10_000))
    assert answers[-1].is_final


async def test_large_and_small_answers_keep_their_order(caller: Caller) -> None:
    answers = await caller.ask(count(6, size=900_000), count(200, size=10))

    for size, n in ((900_000, 6), (10, 200)):
        assert [each.values["i"] for each in answers if len(each.values["pad"]) == size] == [[i] for i in range(n)]


async def test_one_answer_is_not_to_be_had_of_a_model_with_many(caller: Caller) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await caller.stub.ModelInfer(count(3), timeout=TIMEOUT_S)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "model count/1 is decoupled" in (refused.value.details() or "")


async def test_a_list_of_answers_is_a_stream_where_its_config_says_so(caller: Caller) -> None:
    answers = await caller.ask(request("listed", text_input=b"one two three"))

    assert [each.values["text_output"] for each in answers] == [b"one", b"two", b"three"]


async def test_a_caller_that_goes_away_ends_its_generators(streams: StreamMesh, caller: Caller) -> None:
    conversation = caller.open()
    await conversation.say(count(1_000_001, "c"))
    await conversation.say(request("tick", "t", n=1))
    heard: set[str] = set()
    while len(heard) < 2:  # both have begun
        heard.add((await conversation.hear()).id)
    conversation.call.cancel()

    assert 0 < await streams.noted("1000001") < 1_000_001
    await streams.noted("tick-1")
    await streams.quiet("count")
    await streams.quiet("tick")


async def test_a_deadline_ends_a_generator(streams: StreamMesh, caller: Caller) -> None:
    conversation = caller.open(timeout_s=2)
    await conversation.say(request("tick", n=2))
    has_begun = False
    with contextlib.suppress(grpc.aio.AioRpcError):
        while True:
            has_begun = bool(await conversation.hear())

    assert await conversation.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    if has_begun:  # which it has on any machine that is not stalled
        await streams.noted("tick-2")
    await streams.quiet("tick")


async def test_a_slow_reader_stops_its_generator_and_nobody_else(streams: StreamMesh, caller: Caller) -> None:
    conversation = caller.open()
    before = await streams.counted("streamed_answers_total", "count")
    await conversation.say(count(3000, size=100_000))
    assert await streams.rest("count", before) < 1000
    assert len(await caller.ask(count(500, size=100))) == 500, "who reads is answered"
    heard = [await conversation.hear() for _ in range(300)]
    conversation.call.cancel()

    assert [each.values["i"] for each in heard] == [[i] for i in range(300)]
    assert await streams.noted("3000") < 3000
    await streams.quiet("count")


async def test_a_worker_that_is_killed_in_the_middle_is_an_error_and_the_stream_goes_on(
    streams: StreamMesh, caller: Caller
) -> None:
    conversation = caller.open()
    await conversation.say(count(1_000_000, "a", size=1000))
    first = await conversation.hear()
    os.kill(first.values["pid"][0], signal.SIGKILL)
    while not (answer := await conversation.hear()).error:
        assert answer.id == "a"

    assert answer.is_final
    assert answer.error.startswith("the process of count/1 died with this request, after ")

    async def is_answered() -> bool:
        await conversation.say(count(1, "b"))
        heard = await conversation.hear()
        return heard.id == "b" and not heard.error

    await until("the model answers again", is_answered, TIMEOUT_S)


async def test_generate_gives_the_one_answer_as_a_flat_map(streams: StreamMesh) -> None:
    async with streams.post("listed/generate", {"id": "r", "text_input": "word", "stream": False}) as answer:
        flat = {"model_name": "listed", "model_version": "1", "id": "r", "text_output": "word"}
        assert (answer.status, await answer.json()) == (200, flat)
        assert answer.headers["turnout-arm"] == "stable"
    async with streams.post("twice/versions/1/generate", {"n": [1, 2]}) as ordinary:
        assert await ordinary.json() == {"model_name": "twice", "model_version": "1", "y": [2, 4]}


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("listed/generate", {"text_input": "two words"}, 400, "gave more than one answer, generate takes one"),
        ("listed/generate", {"text_input": ""}, 400, "gave no answer, generate takes one"),
        ("listed/generate", {"text": "a"}, 400, "needs input 'text_input' too"),
        ("listed/generate_stream", {"text_input": 5}, 400, "input 'text_input': BYTES takes text"),
        ("listed/versions/9/generate_stream", {"text_input": "a"}, 404, "has no version 9"),
        ("nobody/generate_stream", {"text_input": "a"}, 404, "model 'nobody' is unknown"),
        ("count/infer", {"inputs": []}, 400, "needs input"),
        ("tick/infer", {"inputs": [{"name": "n", "datatype": "INT32", "shape": [1], "data": [1]}]}, 501, "decoupled"),
    ],
)
async def test_what_is_refused_has_its_status(
    streams: StreamMesh, path: str, body: object, status: int, message: str
) -> None:
    async with streams.post(path, body) as answer:
        said = (await answer.json())["error"]

    assert (answer.status, message in said) == (status, True), said


async def test_generate_stream_sends_an_event_for_each_answer(streams: StreamMesh) -> None:
    async with streams.post("listed/generate_stream", {"text_input": "one two é"}) as answer:
        events = (await answer.text()).split("\n\n")
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    words = [json.loads(event.removeprefix("data: "))["text_output"] for event in events[:-1]]

    assert (words, events[-1]) == (["one", "two", "é"], "")
    async with streams.post("twice/generate_stream", {"n": 4}) as ordinary:
        assert await ordinary.text() == 'data: {"model_name":"twice","model_version":"1","y":8}\n\n'
    async with streams.post("listed/generate_stream", {"text_input": ""}) as silent:
        assert (silent.status, await silent.text()) == (200, "")


async def test_a_compressed_body_is_read(streams: StreamMesh) -> None:
    body = zlib.compress(json.dumps({"text_input": "one"}).encode())
    async with streams.post("listed/generate", body, **{"Content-Encoding": "deflate"}) as answer:
        assert (await answer.json())["text_output"] == "one"


async def test_an_error_after_events_is_an_event(streams: StreamMesh) -> None:
    async with streams.post("count/generate_stream", {"n": -5, "size": 0}) as answer:
        events = [json.loads(event[6:]) for event in (await answer.text()).split("\n\n") if event]

    assert answer.status == 200
    assert [event.get("i") for event in events] == [0, 1, 2, None]
    assert events[3] == {"error": "ValueError: unlucky"}


async def test_who_hangs_up_on_events_ends_their_generator(streams: StreamMesh) -> None:
    async with streams.post("count/generate_stream", {"n": 2_000_000, "size": 10}) as answer:
        await answer.content.readline()

    assert await streams.noted("2000000") < 2_000_000
    await streams.quiet("count")


async def test_a_reader_of_events_that_is_slow_stops_their_generator(streams: StreamMesh) -> None:
    before = await streams.counted("streamed_answers_total", "count")
    async with streams.post("count/generate_stream", {"n": 5000, "size": 100_000}) as answer:
        assert await streams.rest("count", before) < 2000
        assert answer.status == 200

    assert await streams.noted("5000") < 5000


async def test_a_time_limit_ends_a_generator_of_events(streams: StreamMesh) -> None:
    for limit_ms in (700, 5000, 20_000):  # on a machine that is stalled it may be over before the first event
        headers = {"X-Request-Timeout-Ms": str(limit_ms)}
        async with streams.post("tick/generate_stream", {"n": 3}, **headers) as answer:
            events = [event for event in (await answer.text()).split("\n\n") if event]
        if answer.status == 200:
            break

    assert "deadline passed" in json.loads(events[-1][6:])["error"]
    await streams.noted("tick-3")


async def test_tritonclient_streams(streams: StreamMesh) -> None:
    address = await streams.mesh.listening("router", "grpc")
    said = await said_by("tests.support.triton_streamer", address)

    assert said["answers"] == [["a", 0, False], ["a", 1, False], ["a", 2, False], ["a", None, True]]
    assert said["ordinary"] == [["b", 8, True]]
    assert "model 'nobody' is unknown" in said["error"]
    assert said["after"] == [["d", 0, False]]
