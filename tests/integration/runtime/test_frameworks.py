"""Real models of every framework, served by workers: answers equal the framework's own in this process."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import skops.io
import xgboost
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from tests.support.runtime_pod import Batcher, Pod, output
from turnout.v1.link_pb2 import Reply

PIXELS, DIGITS = load_digits(return_X_y=True)
PIXELS = PIXELS.astype(np.float32)
ROWS = PIXELS[::50]


async def test_three_frameworks_serve_one_model_side_by_side(pod: Pod) -> None:
    for version in "123":
        (pod.models / "digits" / version).mkdir(parents=True)
    forest = RandomForestClassifier(10, random_state=0).fit(PIXELS, DIGITS)
    trees = xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(PIXELS, DIGITS)
    skops.io.dump(forest, pod.models / "digits" / "1" / "model.skops")
    trees.save_model(pod.models / "digits" / "2" / "model.ubj")
    network = _network(pod.models / "digits" / "3" / "model.onnx")
    await pod.put("models/digits", {"version_policy": {"all": True}})
    async with pod.running():
        replies = [await _ask(pod, version) for version in "123"]
    label, probabilities = network.run(["label", "probabilities"], {"x": ROWS})

    expected = [
        (forest.predict(ROWS), forest.predict_proba(ROWS).astype(np.float32)),
        (trees.predict(ROWS), trees.predict_proba(ROWS)),
        (label, probabilities),
    ]
    for reply, (labels, scores) in zip(replies, expected, strict=True):
        assert np.array_equal(output(reply, "label"), labels)
        assert output(reply, "label").dtype == np.int64
        assert np.array_equal(output(reply, "probabilities"), scores)
        assert output(reply, "probabilities").dtype == np.float32


async def _ask(pod: Pod, version: str) -> Reply:
    instance = await pod.instance("digits", version)
    assert instance.signature.batches, instance.reason
    async with Batcher(instance) as batcher:
        return await (await batcher.send_array(ROWS))


def _network(file: Path) -> onnxruntime.InferenceSession:
    """One layer of fixed weights with the outputs of a classifier."""
    weights = np.random.default_rng(3).normal(size=(64, 10)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 10]),
        ],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
