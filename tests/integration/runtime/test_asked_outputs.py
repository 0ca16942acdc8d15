"""What a model's spec says reaches its backend; BF16 leaves a worker as BF16."""

import numpy as np
import onnx
import xgboost
from onnx import TensorProto, helper
from sklearn.datasets import load_iris

from tests.support.runtime_pod import Batcher, Pod, output
from turnout.v1.tensor_pb2 import Tensor

FEATURES, CLASSES = load_iris(return_X_y=True)
ROWS = FEATURES[::9].astype(np.float32)
WORDS = b"\x80\x3f\x00\x40"  # 1 and 2


async def test_outputs_that_the_spec_names_are_given_to_whom_names_them(pod: Pod) -> None:
    trained = xgboost.XGBClassifier(n_estimators=3, n_jobs=1).fit(FEATURES.astype(np.float32), CLASSES)
    (pod.models / "iris" / "1").mkdir(parents=True)
    trained.save_model(pod.models / "iris" / "1" / "model.ubj")
    await pod.put("models/iris", {"outputs": ["leaf"]})
    async with pod.running():
        instance = await pod.instance("iris", "1")
        async with Batcher(instance) as batcher:
            usual = await (await batcher.send_array(ROWS))
            asked = await (await batcher.send_array(ROWS, outputs=["leaf", "label"]))

    assert instance.signature.batches, instance.reason
    assert [spec.name for spec in instance.signature.outputs] == ["label", "probabilities", "leaf"]
    assert list(instance.signature.on_request) == ["leaf"]
    assert [each.name for each in usual.outputs] == ["label", "probabilities"]
    assert [each.name for each in asked.outputs] == ["leaf", "label"]
    assert np.array_equal(output(asked, "leaf"), trained.apply(ROWS))
    assert np.array_equal(output(asked, "label"), trained.predict(ROWS))


async def test_bf16_comes_out_as_it_went_in(pod: Pod) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.BFLOAT16, ["n", 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (pod.models / "echo" / "1").mkdir(parents=True)
    onnx.save(model, pod.models / "echo" / "1" / "model.onnx")
    await pod.put("models/echo", {})
    async with pod.running():
        instance = await pod.instance("echo", "1")
        async with Batcher(instance) as batcher:
            sent = Tensor(name="x", datatype="BF16", shape=[1, 2], data=WORDS)
            reply = await (await batcher.send_array(np.zeros(1), inputs=[sent]))

    assert instance.signature.batches, instance.reason
    assert [(each.datatype, each.data) for each in reply.outputs] == [("BF16", WORDS)]
