"""A batch's answers are those that its rows get alone, whatever framework runs them."""

from collections.abc import Callable
from pathlib import Path

import lightgbm
import numpy as np
import onnx
import pytest
import skops.io
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from services.runtime.backends import Backend, Options, backend_for

FEATURES, CLASSES = load_iris(return_X_y=True)
FEATURES = FEATURES.astype(np.float32)


def network(folder: Path) -> Backend:
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["shown"]),
        helper.make_node("MatMul", ["shown", "v"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    weights = {"w": (4, 32), "b": (32,), "v": (32, 3)}
    graph = helper.make_graph(
        nodes,
        "iris",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 3]),
        ],
        [numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name) for name, shape in weights.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx"
    )
    return loaded("onnx", folder / "model.onnx")


def doubles(folder: Path) -> Backend:
    """A network whose numbers are FP64."""
    weights = numpy_helper.from_array(np.random.default_rng(2).normal(size=(4, 3)), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
            helper.make_node("MatMul", ["wide", "w"], ["y"]),
        ],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, ["n", 3])],
        [weights],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx"
    )
    return loaded("onnx", folder / "model.onnx")


def forest(folder: Path) -> Backend:
    skops.io.dump(RandomForestClassifier(7, random_state=0).fit(FEATURES, CLASSES), folder / "model.skops")
    return loaded("sklearn", folder / "model.skops")


def line(folder: Path) -> Backend:
    trained = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(FEATURES, CLASSES)
    skops.io.dump(trained, folder / "model.skops")
    return loaded("sklearn", folder / "model.skops")


def trees(folder: Path) -> Backend:
    xgboost.XGBClassifier(n_estimators=7, max_depth=3).fit(FEATURES, CLASSES).save_model(folder / "model.ubj")
    return loaded("xgboost", folder / "model.ubj")


def leaves(folder: Path) -> Backend:
    parameters = {"objective": "multiclass", "num_class": 3, "num_leaves": 5, "num_threads": 1, "verbose": -1}
    lightgbm.train(parameters, lightgbm.Dataset(FEATURES, CLASSES), 5).save_model(folder / "model.txt")
    return loaded("lightgbm", folder / "model.txt")


def code(folder: Path) -> Backend:
    (folder / "model.py").write_text(
        "import numpy as np\n"
        "class Model:\n"
        "    inputs = {'x': ('FP32', [-1, 4])}\n"
        "    outputs = {'y': ('FP64', [-1]), 'order': ('INT64', [-1, 4])}\n"
        "    def predict(self, inputs):\n"
        "        x = inputs['x'].astype(np.float64)\n"
        "        return {'y': np.tanh(x).sum(axis=1), 'order': x.argsort(axis=1, kind='stable')}\n"
    )
    return loaded("python", folder / "model.py", trusted=True)


def loaded(framework: str, file: Path, *, trusted: bool = False) -> Backend:
    backend = backend_for(framework)
    backend.load(file, Options(trusted=trusted))
    return backend


@pytest.fixture(
    scope="module", params=[network, doubles, forest, line, trees, leaves, code], ids=lambda make: make.__name__
)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    make: Callable[[Path], Backend] = request.param
    return make(tmp_path_factory.mktemp("model"))


values = st.lists(st.floats(-10, 10, width=32), min_size=4, max_size=4)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.one_of(values, st.sampled_from(FEATURES.tolist())), min_size=1, max_size=33))
def test_rows_together_are_answered_as_each_alone(backend: Backend, rows: list[list[float]]) -> None:
    x = np.array(rows, np.float32)
    together = backend.run({"x": x})
    alone = [backend.run({"x": x[row : row + 1]}) for row in range(len(x))]

    for name, answer in together.items():
        singles = np.concatenate([each[name] for each in alone])
        assert (answer.dtype, answer.shape) == (singles.dtype, singles.shape)
        if answer.dtype.kind == "i":
            assert np.array_equal(answer, singles)
        else:
            tolerance = 1e-12 if answer.dtype == np.float64 else 1e-5
            assert np.allclose(answer, singles, rtol=tolerance, atol=tolerance)
