"""tritonclient's model repository, as JSON: python -m tests.support.triton_loader http|grpc ADDRESS MODEL.ONNX.

A program of its own, because two definitions of the protobuf package `inference` cannot live in one process.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException

TIMEOUT_S = 100.0


def ask(module: Any, address: str, file: bytes, model: str, *, is_http: bool) -> dict[str, Any]:
    waits = {"network_timeout": TIMEOUT_S} if is_http else {}
    client = module.InferenceServerClient(address, **waits)

    def answer() -> Any:
        metadata = client.get_model_metadata(model) if is_http else client.get_model_metadata(model, as_json=True)
        (spec,) = metadata["inputs"]
        shape = [1 if int(size) < 0 else int(size) for size in spec["shape"]]
        given = module.InferInput(spec["name"], shape, spec["datatype"])
        given.set_data_from_numpy(np.ones(shape, np.float32))
        name = metadata["outputs"][0]["name"]
        return client.infer(model, [given]).as_numpy(name).tolist()

    def row() -> list[str]:
        index = client.get_model_repository_index()
        rows = index if is_http else [{"name": m.name, "state": m.state, "reason": m.reason} for m in index.models]
        (found,) = [each for each in rows if each["name"] == model]
        return [found["state"], found.get("reason", "")]

    client.load_model(model, config="{}", files={"file:1/model.onnx": file})
    said: dict[str, Any] = {"before": answer(), "loaded": row()[0]}
    said["bad"] = status(lambda: client.load_model(model, config="{}", files={"file:1/model.onnx": b"no model"}))
    said["after a bad one"] = answer()
    client.unload_model(model)
    said["unloaded"] = row()
    said["refused"] = status(answer)
    return said


def status(call: Any) -> str:
    try:
        call()
    except InferenceServerException as error:
        return str(error.status())
    return ""


if __name__ == "__main__":
    protocol, address, path = sys.argv[1:]
    if protocol == "http":
        import tritonclient.http as triton
    else:
        import tritonclient.grpc as triton
    said = ask(triton, address, Path(path).read_bytes(), f"brought-{protocol}", is_http=protocol == "http")
    print(json.dumps(said))  # noqa: T201 - the answer
