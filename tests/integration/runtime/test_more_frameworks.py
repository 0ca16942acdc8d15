"""LightGBM, code and tables, served by workers: answers equal the framework's own in this process."""

from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from services.core import arrays
from tests.support.runtime_pod import FAILED, Batcher, Pod, output
from turnout.v1.tensor_pb2 import Tensor

PIXELS, DIGITS = load_digits(return_X_y=True)
ROWS = PIXELS[::50].astype(np.float32)
NORM = """
import numpy as np

class Model:
    inputs = {"x": ("FP32", [-1, 64])}
    outputs = {"norm": ("FP32", [-1])}

    def predict(self, inputs):
        return {"norm": np.linalg.norm(inputs["x"], axis=1)}
"""


def folder(pod: Pod, model: str, version: str) -> Path:
    made = pod.models / model / version
    made.mkdir(parents=True)
    return made


async def test_lightgbm_and_code_serve_and_what_is_wrong_is_said(pod: Pod) -> None:
    data = lightgbm.Dataset(PIXELS, DIGITS)
    params = {"objective": "multiclass", "num_class": 10, "num_threads": 1, "num_leaves": 7, "verbose": -1}
    trees = lightgbm.train(params, data, 2)
    trees.save_model(folder(pod, "digits", "1") / "model.txt")
    (folder(pod, "digits", "2") / "model.py").write_text(NORM)
    (folder(pod, "digits", "3") / "model.txt").write_text(trees.model_to_string()[:3000])
    (folder(pod, "digits", "4") / "model.py").write_text(NORM)
    await pod.put(
        "models/digits", {"version_policy": {"all": True}, "trusted": True, "versions": {"4": {"trusted": False}}}
    )
    async with pod.running():
        ready = [await pod.instance("digits", version) for version in "12"]
        failed = [await pod.instance("digits", version, FAILED) for version in "34"]
        replies = []
        for instance in ready:
            async with Batcher(instance) as batcher:
                replies.append(await (await batcher.send_array(ROWS)))

    assert [instance.signature.batches for instance in ready] == [True, True]
    assert np.array_equal(output(replies[0], "label"), np.argmax(trees.predict(ROWS), axis=1))
    assert np.array_equal(output(replies[0], "probabilities"), trees.predict(ROWS).astype(np.float32))
    assert np.array_equal(output(replies[1], "norm"), np.linalg.norm(ROWS, axis=1))
    assert failed[0].reason.startswith("model.txt: expected a LightGBM model; its trees should have ")
    assert failed[1].reason.startswith("model.py is code and would run when loaded: set trusted")


async def test_a_table_is_served_column_by_column(pod: Pod) -> None:
    table = pd.DataFrame({"city": ["Bonn", "Ulm", "Bonn", "Köln"], "age": [31.0, 25.5, 40.0, 19.0]})
    columns = ColumnTransformer(
        [("city", OneHotEncoder(handle_unknown="ignore"), ["city"]), ("age", StandardScaler(), ["age"])]
    )
    estimator = make_pipeline(columns, LogisticRegression()).fit(table, ["no", "yes", "no", "yes"])
    skops.io.dump(estimator, folder(pod, "shop", "1") / "model.skops")
    await pod.put("models/shop", {})
    async with pod.running():
        instance = await pod.instance("shop", "1")
        inputs = []
        for name in table:
            datatype, data = arrays.encode(table[name].to_numpy())
            inputs.append(Tensor(name=str(name), datatype=datatype, shape=[len(table)], data=data))
        async with Batcher(instance) as batcher:
            sent = await batcher.send_array(np.zeros(len(table)), inputs=inputs)
            reply = await sent

    assert instance.signature.batches, instance.reason
    assert [(spec.name, spec.datatype) for spec in instance.signature.inputs] == [("city", "BYTES"), ("age", "FP64")]
    assert [text.decode() for text in output(reply, "label")] == estimator.predict(table).tolist()
    assert np.array_equal(output(reply, "probabilities"), estimator.predict_proba(table).astype(np.float32))
