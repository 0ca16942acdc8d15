"""One client of tritonclient, of the blocking or of the aio kind, called alike, and what it sends."""

import asyncio
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException

from tests.support.clients import report
from tests.support.clients.values import MODELS, WIDTH, WITH_JSON, same, tensor

_STATUS = {"400": "INVALID_ARGUMENT", "404": "NOT_FOUND"}
Arrays = Mapping[str, np.ndarray]


class Side:
    def __init__(self, module: Any, address: str, loop: asyncio.AbstractEventLoop | None, number: int = 0) -> None:
        self.module = module
        self.number = number  # of the router
        self.is_http = ".http" in module.__name__
        self.loop = loop
        self.client = self._made(module, address)

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        return self.done(getattr(self.client, method)(*arguments, **options))

    def infer(
        self,
        arrays: Arrays,
        model: str = "every",
        *,
        binary: bool = True,
        outputs: Sequence[str] | None = None,
        **options: Any,
    ) -> Any:
        """`binary`: as the HTTP client sends and asks for those datatypes that JSON can hold."""
        inputs = [self.input(name, array, binary=binary) for name, array in arrays.items()]
        wanted = None if outputs is None else [self.output(name, binary=binary) for name in outputs]
        return self.call("infer", model, inputs, outputs=wanted, **options)

    def refused(self, status: str, says: str, arrays: Arrays, model: str = "every", **options: Any) -> None:
        """Assert that the server refuses with the HTTP status (or gRPC's word for it) and those words."""
        by_protocol = f"[{status}]" if self.is_http else f"[StatusCode.{_STATUS[status]}]"
        report.refused(lambda: self.infer(arrays, model, **options), InferenceServerException, by_protocol, says)

    def input(self, name: str, array: np.ndarray, *, binary: bool = True) -> Any:
        datatype = name[3:].upper()
        given = self.module.InferInput(name, list(array.shape), datatype)
        as_json = self.is_http and not binary and datatype in WITH_JSON
        given.set_data_from_numpy(array, **({"binary_data": False} if as_json else {}))
        return given

    def output(self, name: str, *, binary: bool = True) -> Any:
        as_json = self.is_http and not binary and name[4:].upper() in WITH_JSON
        return self.module.InferRequestedOutput(name, **({"binary_data": False} if as_json else {}))

    def _made(self, module: Any, address: str) -> Any:
        async def make() -> Any:
            return module.InferenceServerClient(address)

        return module.InferenceServerClient(address) if self.loop is None else self.loop.run_until_complete(make())

    def done(self, said: Any) -> Any:
        return self.loop.run_until_complete(said) if self.loop is not None and isawaitable(said) else said


def arrays_of(model: str, rows: int, *, as_text: bool = False) -> dict[str, np.ndarray]:
    return {f"in_{each.lower()}": tensor(each, rows, WIDTH, as_text=as_text) for each in MODELS[model]}


def check_answer(sent: Arrays, result: Any) -> None:
    lost = [name for name, array in sent.items() if not same(array, result.as_numpy(f"out_{name[3:]}"))]
    assert not lost, [(name, sent[name], result.as_numpy(f"out_{name[3:]}")) for name in lost]
