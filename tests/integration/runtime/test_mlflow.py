"""Models of MLflow, served by workers: by the backend of their flavor, or by MLflow itself."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from services.core import arrays
from tests.support.runtime_pod import FAILED, Batcher, Pod, output
from turnout.v1.tensor_pb2 import Tensor

pytestmark = pytest.mark.timeout(300)

LOADED_S = 120.0  # MLflow takes seconds of processor time to import
PYFUNC = """
flavors:
  python_function:
    loader_module: a_loader
    code: code
    data: data.txt
    python_version: 3.11.7
signature:
  inputs: '[{"type": "double", "name": "age"}, {"type": "string", "name": "city"}]'
  outputs: '[{"type": "string", "name": "who"}]'
"""
LOADER = """
import os
import threading

import pandas as pd

class Loaded:
    def __init__(self, path):
        self.suffix = open(path).read()

    def predict(self, table):
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
        assert not [thread for thread in threading.enumerate() if "elemetry" in thread.name]
        return pd.DataFrame({"who": table["city"] + self.suffix + table["age"].astype(str)})

def _load_pyfunc(path):
    return Loaded(path)
"""
ONNX = """
flavors:
  python_function: {loader_module: mlflow.onnx, data: model.onnx}
  onnx: {data: model.onnx, onnx_version: 1.23.2}
"""


def put(folder: Path, described: str, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in {"MLmodel": described, **files}.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


async def test_a_flavor_has_its_own_backend_and_code_runs_when_trusted(pod: Pod) -> None:
    code = {"code/a_loader.py": LOADER, "data.txt": " is "}
    put(pod.models / "who" / "1", PYFUNC, **code)
    put(pod.models / "who" / "2", PYFUNC, **code)
    folder = put(pod.models / "double" / "1", ONNX)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx"
    )
    ages, cities = np.array([31.5, 4.0]), np.array([b"Ulm", "Köln".encode()], dtype=object)
    inputs = []
    for name, array in (("city", cities), ("age", ages)):
        datatype, data = arrays.encode(array)
        inputs.append(Tensor(name=name, datatype=datatype, shape=array.shape, data=data))
    spec = {"version_policy": {"all": True}, "versions": {"1": {"trusted": True}}}
    await pod.put("models/who", spec)
    await pod.put("models/double", {})
    async with pod.running():
        untrusted = await pod.instance("who", "2", FAILED, LOADED_S)
        trusted = await pod.instance("who", "1", timeout_s=LOADED_S)
        mapped = await pod.instance("double", "1")
        async with Batcher(trusted) as batcher:
            reply = await (await batcher.send_array(ages, inputs=inputs))
        async with Batcher(mapped) as batcher:
            doubled = await batcher.run((1.0, 2.0))

    assert output(reply, "who").tolist() == [b"Ulm is 31.5", "Köln is 4.0".encode()]
    assert trusted.signature.batches, trusted.reason
    assert untrusted.reason.startswith("MLmodel: its python_function is code and would run when loaded: set trusted")
    assert mapped.signature.platform == "onnxruntime_onnx"
    assert output(doubled, "y").tolist() == [[2.0, 4.0]]
