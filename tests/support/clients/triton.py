"""What tritonclient sees: python -m tests.support.clients.triton CHECK,… http|grpc ADDRESS…, one a router.

A program of its own, because two definitions of the protobuf package `inference` cannot live in one process.
"""

import asyncio
import importlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException

from tests.support.clients import report, triton_extensions
from tests.support.clients.triton_side import Arrays, Side, arrays_of, check_answer
from tests.support.clients.values import BATCH_ROWS, DATATYPES, MOST_ROWS, WIDTH, WITH_JSON

ROWS = (0, 1, BATCH_ROWS, BATCH_ROWS + 1, MOST_ROWS)
PATIENCE_S = 60.0
_FIELDS = {"BOOL": "bool", "INT64": "int64", "UINT64": "uint64", "FP32": "fp32", "FP64": "fp64", "BYTES": "bytes"}


def health(side: Side) -> None:
    assert side.call("is_server_live")
    assert side.call("is_server_ready")
    assert side.call("is_model_ready", "every")
    assert side.call("is_model_ready", "every", "1")
    if side.is_http:  # its own words: not ready, whatever the reason
        assert not side.call("is_model_ready", "nobody")
        assert not side.call("is_model_ready", "every", "9")
    else:
        for model, version in (("nobody", ""), ("every", "9")):
            report.refused(
                lambda model=model, version=version: side.call("is_model_ready", model, version),
                InferenceServerException,
                "NOT_FOUND",
            )


def metadata(side: Side) -> None:
    as_dict = {} if side.is_http else {"as_json": True}
    server = side.call("get_server_metadata", **as_dict)
    model = side.call("get_model_metadata", "every", **as_dict)

    assert server["name"] == "turnout"
    assert server["version"]
    assert (model["name"], model["versions"]) == ("every", ["1"])
    given = {each["name"]: (each["datatype"], [int(size) for size in each["shape"]]) for each in model["inputs"]}
    assert given == {f"in_{each.lower()}": (each, [-1, WIDTH]) for each in DATATYPES}
    assert {each["name"] for each in model["outputs"]} == {f"out_{each.lower()}" for each in DATATYPES}
    report.refused(lambda: side.call("get_model_metadata", "nobody"), InferenceServerException, "nobody")


def binary_of_every_datatype(side: Side) -> None:
    for rows in ROWS:
        sent = arrays_of("every", rows)
        check_answer(sent, side.infer(sent))
        check_answer(sent, side.infer(sent, outputs=[f"out_{each.lower()}" for each in DATATYPES]))


def json_or_typed_of_every_datatype(side: Side) -> None:
    for rows in ROWS:
        sent = arrays_of("plain", rows, as_text=True)
        if side.is_http:
            outputs = [f"out_{each.lower()}" for each in WITH_JSON]
            check_answer(sent, side.infer(sent, "plain", binary=False, outputs=outputs))
        else:
            check_answer(sent, _typed(side, sent))


def json_beside_binary(side: Side) -> None:
    sent = arrays_of("every", 2, as_text=True)
    check_answer(sent, side.infer(sent, binary=False))
    check_answer(sent, side.infer(sent, binary=False, outputs=[f"out_{each.lower()}" for each in DATATYPES]))


def one_row_too_many(side: Side) -> None:
    for binary in (True, False):
        sent = arrays_of("every", MOST_ROWS + 1, as_text=True)
        side.refused("400", f"takes at most {MOST_ROWS}", sent, binary=binary)


def outputs_as_asked(side: Side) -> None:
    sent = arrays_of("every", 2)
    asked = ["out_uint8", "out_bytes", "out_fp16"]
    result = side.infer(sent, outputs=asked, request_id="r-1")
    response = result.get_response()

    given = response["outputs"] if side.is_http else response.outputs
    assert [each["name"] if side.is_http else each.name for each in given] == asked
    assert (response["id"] if side.is_http else response.id) == "r-1"
    assert (response["model_version"] if side.is_http else response.model_version) == "1"
    assert result.as_numpy("out_fp32") is None
    side.refused("400", "out_none", sent, outputs=["out_none"])


def errors(side: Side) -> None:
    sent = arrays_of("every", 2)
    few = {**sent}
    del few["in_fp32"]
    side.refused("404", "model 'nobody' is unknown", sent, "nobody")
    side.refused("404", "no version 9", sent, model_version="9")
    side.refused("400", "needs input 'in_fp32' too", few)
    side.refused("400", "no input 'xx_fp32'", {**few, "xx_fp32": sent["in_fp32"]})
    side.refused("400", "shape", {**sent, "in_fp32": np.zeros((2, WIDTH + 1), np.float32)})
    side.refused("400", "rows", {**sent, "in_fp32": np.zeros((1, WIDTH), np.float32)})
    side.refused("400", "priority", sent, priority=-1 if side.is_http else 2**63)
    check_answer(sent, side.infer(sent, model_version="1", priority=1, timeout=20_000_000))


def compressed(side: Side) -> None:
    sent = arrays_of("every", 4)
    if not side.is_http:
        check_answer(sent, side.infer(sent, compression_algorithm="gzip"))
        return
    for algorithm in ("gzip", "deflate"):
        options = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
        check_answer(sent, side.infer(sent, **options))


def configuration(side: Side) -> None:
    said = side.call("get_model_config", "every", **({} if side.is_http else {"as_json": True}))
    config = said if side.is_http else said["config"]

    assert (config["name"], config["max_batch_size"]) == ("every", BATCH_ROWS)
    types = {each["name"]: each["data_type"] for each in config["input"]}
    assert types == {f"in_{each.lower()}": f"TYPE_{'STRING' if each == 'BYTES' else each}" for each in DATATYPES}
    assert {tuple(int(size) for size in each["dims"]) for each in config["output"]} == {(WIDTH,)}
    report.refused(lambda: side.call("get_model_config", "nobody"), InferenceServerException, "nobody")


def statistics(side: Side) -> None:
    sent = arrays_of("every", 2)
    before = _statistics(side)
    for _ in range(3):
        check_answer(sent, side.infer(sent))
    until = time.monotonic() + PATIENCE_S
    while _rows(now := _statistics(side)) < _rows(before) + 6:
        assert time.monotonic() < until, (before, now)
        time.sleep(0.05)

    batches = [(int(each.get("batch_size", 0)), int(each["compute_infer"]["count"])) for each in now["batch_stats"]]
    assert sum(count for _, count in batches) == int(now["execution_count"])
    assert sum(rows * count for rows, count in batches) == _rows(now)
    assert _successes(now) >= _successes(before) + 3
    everyone = side.call("get_inference_statistics", **({} if side.is_http else {"as_json": True}))
    assert {each["name"] for each in everyone["model_stats"]} >= {"every", "plain"}


def _statistics(side: Side) -> Any:
    said = side.call("get_inference_statistics", "every", "1", **({} if side.is_http else {"as_json": True}))
    (found,) = said["model_stats"]
    assert (found["name"], found["version"]) == ("every", "1")
    return found


def _rows(statistics: Any) -> int:
    return int(statistics.get("inference_count", 0))  # what is 0 is left out


def _successes(statistics: Any) -> int:
    return int(statistics["inference_stats"].get("success", {}).get("count", 0))


def _typed(side: Side, sent: Arrays) -> Any:
    """By the same stubs, the tensors as typed contents, which this client itself never sends."""
    messages = importlib.import_module("tritonclient.grpc.service_pb2")
    request = messages.ModelInferRequest(model_name="plain")
    for name, array in sent.items():
        datatype = name[3:].upper()
        field = _FIELDS.get(datatype, "uint" if datatype.startswith("U") else "int")
        given = request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        getattr(given.contents, f"{field}_contents").extend(array.ravel().tolist())
    result = importlib.import_module("tritonclient.grpc").InferResult
    return result(side.done(side.client._client_stub.ModelInfer(request)))


def main(checks: str, protocol: str, addresses: Sequence[str]) -> None:
    loop = asyncio.new_event_loop()
    kinds = {"": None, ".aio": loop}
    sides = {
        f"{protocol}{kind} {number}": Side(
            importlib.import_module(f"tritonclient.{protocol}{kind}"), address, its_loop, number
        )
        for number, address in enumerate(addresses)
        for kind, its_loop in kinds.items()
    }
    report.run(checks, {**vars(triton_extensions), **globals()}, sides)
    for side in sides.values():
        side.call("close")
    loop.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
