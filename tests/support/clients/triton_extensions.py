"""What tritonclient sees of Triton's extensions: repository, shared memory, streams, classification."""

import os
import queue
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

from tests.support.clients import report
from tests.support.clients.triton_side import Side, arrays_of, check_answer
from tests.support.clients.values import WIDTH, same

PATIENCE_S = 60.0
_BAD_CONFIG = '{"max_batch_size": "many"}'


def repository(side: Side) -> None:
    """One of the kinds of clients at one of the routers, as it takes the model away from all."""
    index = side.call("get_model_repository_index", **({} if side.is_http else {"as_json": True}))
    models = index if side.is_http else index["models"]
    assert {each["name"]: each.get("state") for each in models}["every"] == "READY"
    report.refused(lambda: side.call("load_model", "nobody"), InferenceServerException, "nobody")
    report.refused(lambda: side.call("load_model", "spare", config=_BAD_CONFIG), InferenceServerException)
    sent = {"in_fp32": np.ones((1, WIDTH), np.float32)}
    check_answer(sent, side.infer(sent, "spare"))
    if side.loop is not None or side.number:
        return
    side.call("unload_model", "spare")
    _until(lambda: not _is_ready(side, "spare"))
    report.refused(lambda: side.infer(sent, "spare"), InferenceServerException)
    side.call("load_model", "spare")
    _until(lambda: _is_ready(side, "spare"))
    check_answer(sent, side.infer(sent, "spare"))


def shared_memory(side: Side) -> None:
    sent = arrays_of("every", 2)
    numbers = sent["in_fp64"]
    name = f"conformance-{os.getpid()}-{side.number}-{side.is_http}-{side.loop is None}"
    region = shm.create_shared_memory_region(name, f"/{name}", 2 * numbers.nbytes, create_only=True)
    try:
        shm.set_shared_memory_region(region, [numbers])
        side.call("register_system_shared_memory", name, f"/{name}", 2 * numbers.nbytes)
        status = side.call("get_system_shared_memory_status", **({} if side.is_http else {"as_json": True}))
        assert name in {each["name"] for each in (status if side.is_http else status["regions"].values())}
        _through(side, sent, region, name)
        side.call("unregister_system_shared_memory", name)
        report.refused(lambda: side.call("get_system_shared_memory_status", name), InferenceServerException, name)
    finally:
        shm.destroy_shared_memory_region(region)


def _through(side: Side, sent: dict[str, np.ndarray], region: Any, name: str) -> None:
    """One input read from the first half of the region, its output written into the second."""
    numbers = sent["in_fp64"]
    inputs = [side.input(each, array) for each, array in sent.items() if each != "in_fp64"]
    shared = side.module.InferInput("in_fp64", list(numbers.shape), "FP64")
    shared.set_shared_memory(name, numbers.nbytes)
    wanted = side.module.InferRequestedOutput("out_fp64")
    wanted.set_shared_memory(name, numbers.nbytes, offset=numbers.nbytes)
    plain = side.output("out_int64")

    result = side.call("infer", "every", [*inputs, shared], outputs=[wanted, plain])

    assert same(numbers, shm.get_contents_as_numpy(region, np.float64, numbers.shape, offset=numbers.nbytes))
    assert same(sent["in_int64"], result.as_numpy("out_int64"))


def streams(side: Side) -> None:
    """Two good requests with a bad one between, on one stream that stays open."""
    sent = arrays_of("every", 2)
    asked = [("every", "a"), ("nobody", "b"), ("every", "c")]
    heard = _aio_stream(side, sent, asked) if side.loop is not None else _stream(side, sent, asked)

    (first, no_fault), (_, fault), (last, _) = heard
    assert no_fault is None
    assert "nobody" in str(fault)
    for result, identity in ((first, "a"), (last, "c")):
        check_answer(sent, result)
        assert result.get_response().id == identity


def _stream(side: Side, sent: dict[str, np.ndarray], asked: list[tuple[str, str]]) -> list[tuple[Any, Any]]:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    side.client.start_stream(lambda result, error: answers.put((result, error)))
    heard = []
    for model, identity in asked:
        inputs = [side.input(name, array) for name, array in sent.items()]
        side.client.async_stream_infer(model, inputs, request_id=identity)
        heard.append(answers.get(timeout=PATIENCE_S))
    side.client.stop_stream()
    return heard


def _aio_stream(side: Side, sent: dict[str, np.ndarray], asked: list[tuple[str, str]]) -> list[tuple[Any, Any]]:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for model, identity in asked:
            inputs = [side.input(name, array) for name, array in sent.items()]
            yield {"model_name": model, "inputs": inputs, "request_id": identity}

    async def heard() -> list[tuple[Any, Any]]:
        return [each async for each in side.client.stream_infer(requests(), stream_timeout=PATIENCE_S)]

    answers: list[tuple[Any, Any]] = side.done(heard())
    return answers


def classification(side: Side) -> None:
    sent = arrays_of("every", 1)
    sent["in_fp32"] = np.array([[0.5, 2.0, 1.0]], np.float32)
    inputs = [side.input(name, array) for name, array in sent.items()]
    result = side.call("infer", "every", inputs, outputs=[side.module.InferRequestedOutput("out_fp32", class_count=2)])

    classes = [each.decode().split(":")[:2] for each in result.as_numpy("out_fp32").ravel()]
    assert [(float(value), int(index)) for value, index in classes] == [(2.0, 1), (1.0, 2)]


def _is_ready(side: Side, model: str) -> bool:
    try:
        return bool(side.call("is_model_ready", model))
    except InferenceServerException:
        return False


def _until(check: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)
