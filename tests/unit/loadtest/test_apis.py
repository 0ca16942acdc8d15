"""The benchmark of APIs asks each for the same rows, and reads the same answer."""

import numpy as np
import pytest

from loadtest.apis.calls import APIS, Api
from loadtest.apis.tables import page
from loadtest.workloads import WORKLOADS
from services.core.model_spec import ModelSpec
from services.router import codec
from services.router.rest import answers
from services.router.rest.codec import ALL_BINARY, LENGTH, parse_request, read_binary
from services.router.rest.raw import given_of
from services.router.table import Target
from services.router.tfserving import predict_json
from tests.support.puppets import signature
from turnout.v1 import link_pb2

W2 = WORKLOADS[1]
ROWS = np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)
TARGET = Target(
    link_pb2.Served(
        model="ranker",
        version="1",
        signature=signature((("x", "FP32", (-1, 32)),), (("y", "FP32", (-1, 1)),)),
        max_request_rows=100,
    ),
    ModelSpec(),
)
ANSWER = np.array([[0.1], [0.2], [float("-0.0")]], np.float32)


def asked(api: Api, rows: np.ndarray) -> tuple[str, list[int], bytes]:
    """Name, shape and bytes of what the call asks for."""
    call = api.call(W2, rows)
    match api.name:
        case "gRPC":
            given = codec.parse_request(call.body[5:]).inputs[0]
        case "V2 binary":
            given = read_binary("ranker", "", call.body, int(call.headers[LENGTH]))[0].inputs[0]
        case "V2 raw":
            given = given_of(TARGET, call.body)
        case "V2 JSON":
            given = parse_request("ranker", "", call.body).inputs[0]
        case _:
            inference, draft = predict_json.parse("ranker", "", call.body)
            given = draft.bind(TARGET, inference).inputs[0]
    return given.name, list(given.shape), bytes(given.data)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_asks_for_the_same_rows(api: Api) -> None:
    rows = ROWS[:1] if api.name == "V2 raw" else ROWS

    assert asked(api, rows) == ("x", list(rows.shape), rows.tobytes())


def test_every_api_reads_the_same_answer() -> None:
    output = {"name": "y", "datatype": "FP32", "shape": [3, 1], "data": ANSWER.tobytes()}
    reply = link_pb2.Reply(outputs=[output])
    body, length = answers.write_answer("ranker", "1", "", reply, {}, ALL_BINARY)
    written = {
        "gRPC": (codec.write_response("ranker", "1", "", reply), {}),
        "V2 binary": (body, {LENGTH: str(length)}),
        "V2 raw": (body, {LENGTH: str(length)}),
        "V2 JSON": (answers.write_response("ranker", "1", "", reply), {}),
        "V1 JSON": (predict_json.write(reply.outputs, is_rows=True), {}),
    }

    for api in APIS:
        assert api.read(*written[api.name]).tobytes() == ANSWER.tobytes(), api.name


def test_a_page_has_a_line_for_each_call() -> None:
    cpu = {"router": 1.0, "batcher": 2.0, "worker": 3.0}
    row = {"workload": "W1", "api": "V2 raw", "body_bytes": 128, "requests_s": 1e4, "p50_ms": 1, "p99_ms": 2}

    line = page([{**row, "cpu_us": cpu}]).splitlines()[-1]

    assert line == "| W1 | V2 raw | 128 | 10,000 | 35,400 | 1.00 | 2.00 | 1.0 | 2.0 | 3.0 | 6.0 |"
