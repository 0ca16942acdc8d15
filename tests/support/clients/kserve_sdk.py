"""What the KServe SDK sees: python -m tests.support.clients.kserve_sdk CHECK,… REST GRPC…, two a router."""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc.aio
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

from tests.support.clients import report
from tests.support.clients.values import MODELS, MOST_ROWS, WIDTH, same, tensor

Arrays = Mapping[str, np.ndarray]


class Side:
    """One client of one protocol, called alike: the REST one is told the server with every call."""

    def __init__(self, client: Any, base: Sequence[str], loop: asyncio.AbstractEventLoop) -> None:
        self.client = client
        self.is_rest = bool(base)
        self._base = base
        self._loop = loop

    def call(self, method: str, *arguments: Any) -> Any:
        return self._loop.run_until_complete(getattr(self.client, method)(*self._base, *arguments))

    def infer(self, arrays: Arrays, model: str = "plain", *, binary: bool = True) -> Any:
        inputs = []
        for name, array in arrays.items():
            given = InferInput(name, list(array.shape), name[3:].upper())
            given.set_data_from_numpy(array, binary_data=binary)
            inputs.append(given)
        asked = {"binary_data_output": True} if binary and self.is_rest else None
        request = InferRequest(model_name=model, infer_inputs=inputs, request_id="r-1", parameters=asked)
        return self.call("infer", request, *([model] if self.is_rest else []))

    def refused(self, call: Callable[[], Any], status: str, code: str, says: str) -> None:
        fault: type[Exception] = httpx.HTTPStatusError if self.is_rest else grpc.aio.AioRpcError
        report.refused(call, fault, status if self.is_rest else code, says)


def arrays_of(rows: int, *, json: bool = False) -> dict[str, np.ndarray]:
    """Texts only, as this client reads no other BYTES; `json`: finite numbers only, as others are null in its JSON."""
    return {f"in_{each.lower()}": tensor(each, rows, WIDTH, as_text=True, finite=json) for each in MODELS["plain"]}


def check_answer(sent: Arrays, response: Any) -> None:
    got = {output.name: output.as_numpy() for output in response.outputs}
    lost = [name for name, array in sent.items() if not same(array, got[f"out_{name[3:]}"])]
    assert not lost, [(name, sent[name], got[f"out_{name[3:]}"]) for name in lost]
    assert (response.model_name, response.id) == ("plain", "r-1")


def health(side: Side) -> None:
    assert side.call("is_server_live") is True
    assert side.call("is_server_ready") is True
    assert side.call("is_model_ready", "plain") is True
    if side.is_rest:
        assert side.call("is_model_ready", "nobody") is False
    else:
        side.refused(lambda: side.call("is_model_ready", "nobody"), "", "NOT_FOUND", "nobody")


def binary_of_every_datatype(side: Side) -> None:
    for rows in (0, 1, MOST_ROWS):
        sent = arrays_of(rows)
        check_answer(sent, side.infer(sent))


def json_or_typed_of_every_datatype(side: Side) -> None:
    for rows in (0, 1, MOST_ROWS):
        sent = arrays_of(rows, json=True)
        check_answer(sent, side.infer(sent, binary=False))


def errors(side: Side) -> None:
    sent, few = arrays_of(MOST_ROWS + 1, json=True), {"in_int8": np.zeros((1, WIDTH), np.int8)}
    for binary in (True, False):
        side.refused(lambda b=binary: side.infer(few, "nobody", binary=b), "404", "NOT_FOUND", "'nobody' is unknown")
        side.refused(lambda b=binary: side.infer(few, binary=b), "400", "INVALID_ARGUMENT", "needs input")
        side.refused(lambda b=binary: side.infer(sent, binary=b), "400", "INVALID_ARGUMENT", "takes at most")


async def _sides(addresses: Sequence[str], loop: asyncio.AbstractEventLoop) -> dict[str, Side]:
    sides = {}
    for number, (rest, by_grpc) in enumerate(zip(addresses[::2], addresses[1::2], strict=True)):
        client = InferenceRESTClient(RESTConfig(protocol="v2"))
        sides[f"rest {number}"] = Side(client, [f"http://{rest}"], loop)
        sides[f"grpc {number}"] = Side(InferenceGRPCClient(by_grpc), [], loop)
    return sides


def main(checks: str, addresses: Sequence[str]) -> None:
    logging.disable()  # it logs each refusal with its stack
    loop = asyncio.new_event_loop()
    sides = loop.run_until_complete(_sides(addresses, loop))
    report.run(checks, globals(), sides)
    for side in sides.values():
        loop.run_until_complete(side.client.close())
    loop.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
