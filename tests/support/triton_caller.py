"""tritonclient's view of a router, as JSON: python -m tests.support.triton_caller http|grpc ADDRESS MODEL.

A program of its own, because two definitions of the protobuf package `inference` cannot live in one process.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def ask(module: Any, address: str, model: str, *, is_http: bool) -> dict[str, Any]:
    client = module.InferenceServerClient(address)
    json_only = {"binary_data": False} if is_http else {}

    def infer(name: str, version: str = "", shape: tuple[int, ...] = (2, 2), datatype: str = "FP32") -> Any:
        kind = {"FP32": np.float32, "FP64": np.float64}[datatype]
        values = np.arange(np.prod(shape), dtype=kind).reshape(shape)
        given = module.InferInput("x", list(shape), datatype)
        given.set_data_from_numpy(values, **json_only)
        wanted = [module.InferRequestedOutput("y", **json_only)]
        return client.infer(name, [given], outputs=wanted, model_version=version, request_id="r-1")

    result = infer(model)
    response = result.get_response()
    metadata = client.get_model_metadata(model) if is_http else client.get_model_metadata(model, as_json=True)
    return {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(model),
        "inputs": metadata["inputs"],
        "y": result.as_numpy("y").tolist(),
        "id": response["id"] if is_http else response.id,
        "errors": {
            "unknown model": refused(lambda: infer("nobody")),
            "unknown version": refused(lambda: infer(model, "9")),
            "wrong shape": refused(lambda: infer(model, "", (1, 3))),
            "wrong dtype": refused(lambda: infer(model, "", (1, 2), "FP64")),
        },
        "after": infer(model, "1").as_numpy("y").tolist(),
    }


def refused(call: Callable[[], object]) -> list[str]:
    from tritonclient.utils import InferenceServerException  # noqa: PLC0415 - see above

    try:
        call()
    except InferenceServerException as error:
        return [str(error.status()), str(error.message())]
    return []


if __name__ == "__main__":
    protocol, address, model = sys.argv[1:]
    if protocol == "http":
        import tritonclient.http as triton
    else:
        import tritonclient.grpc as triton
    print(json.dumps(ask(triton, address, model, is_http=protocol == "http")))  # noqa: T201 - the answer
