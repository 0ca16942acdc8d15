"""XGBoost models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_diabetes, load_iris

from services.core.signature import TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.xgboost import Model
from services.runtime.backends.xgboost_files import fault

FEATURES, CLASSES = load_iris(return_X_y=True)
FEATURES = FEATURES.astype(np.float32)
ROWS = FEATURES[::7]
LABEL = TensorSpec("label", "INT64", (-1,))


def loaded(folder: Path, trained: Any, name: str = "model.json") -> tuple[Model, Any]:
    trained.save_model(folder / name)
    model = Model()
    return model, model.load(folder / name, Options())


@pytest.mark.parametrize("name", ["model.json", "model.ubj"])
def test_a_classifiers_answers_equal_its_own(tmp_path: Path, name: str) -> None:
    trained = xgboost.XGBClassifier(n_estimators=4, max_depth=2).fit(FEATURES, CLASSES)
    model, signature = loaded(tmp_path, trained, name)
    answer = model.run({"x": ROWS})

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 4)),)
    assert signature.outputs == (LABEL, TensorSpec("probabilities", "FP32", (-1, 3)))
    assert np.array_equal(answer["label"], trained.predict(ROWS))
    assert answer["label"].dtype == np.int64
    assert np.array_equal(answer["probabilities"], trained.predict_proba(ROWS))


def test_two_classes_have_two_probabilities(tmp_path: Path) -> None:
    trained = xgboost.XGBClassifier(n_estimators=4).fit(FEATURES[:100], CLASSES[:100])
    model, signature = loaded(tmp_path, trained)
    answer = model.run({"x": ROWS})

    assert signature.outputs[1].shape == (-1, 2)
    assert np.array_equal(answer["label"], trained.predict(ROWS))
    assert np.array_equal(answer["probabilities"], trained.predict_proba(ROWS))


def test_training_that_stopped_early_answers_with_its_best_round(tmp_path: Path) -> None:
    trained = xgboost.XGBClassifier(n_estimators=40, early_stopping_rounds=2, learning_rate=1.0)
    trained.fit(FEATURES[::2], CLASSES[::2], eval_set=[(FEATURES[1::2], CLASSES[1::2])], verbose=False)
    model, _ = loaded(tmp_path, trained)

    assert trained.get_booster().num_boosted_rounds() > trained.best_iteration + 1
    assert np.array_equal(model.run({"x": ROWS})["probabilities"], trained.predict_proba(ROWS))


@pytest.mark.parametrize("booster", ["gbtree", "gblinear"])
def test_a_regressors_answers_equal_its_own(tmp_path: Path, booster: str) -> None:
    features, values = load_diabetes(return_X_y=True)
    rows = features[:9].astype(np.float32)
    trained = xgboost.XGBRegressor(booster=booster, n_estimators=4).fit(features.astype(np.float32), values)
    model, signature = loaded(tmp_path, trained)

    assert signature.outputs == (TensorSpec("y", "FP32", (-1,)),)
    assert np.allclose(model.run({"x": rows})["y"], trained.predict(rows), rtol=1e-6)


@pytest.mark.parametrize("objective", ["multi:softprob", "multi:softmax"])
def test_a_plain_booster_gives_labels_and_probabilities(tmp_path: Path, objective: str) -> None:
    data = xgboost.DMatrix(FEATURES, CLASSES)
    trained = xgboost.train({"objective": objective, "num_class": 3}, data, 4)
    model, signature = loaded(tmp_path, trained)
    answer = model.run({"x": ROWS})
    own = trained.predict(xgboost.DMatrix(ROWS))

    assert [spec.name for spec in signature.outputs] == ["label", "probabilities"]
    assert np.array_equal(answer["label"], own if objective == "multi:softmax" else np.argmax(own, axis=1))
    assert np.allclose(answer["probabilities"].sum(axis=1), 1)


def test_a_hinge_gives_labels_only(tmp_path: Path) -> None:
    data = xgboost.DMatrix(FEATURES[:100], CLASSES[:100])
    trained = xgboost.train({"objective": "binary:hinge"}, data, 4)
    model, signature = loaded(tmp_path, trained)

    assert signature.outputs == (LABEL,)
    assert np.array_equal(model.run({"x": ROWS})["label"], trained.predict(xgboost.DMatrix(ROWS)))


def test_names_of_columns_are_no_hindrance(tmp_path: Path) -> None:
    data = xgboost.DMatrix(FEATURES, CLASSES, feature_names=["a", "b", "c", "d"])
    trained = xgboost.train({"objective": "multi:softprob", "num_class": 3}, data, 2)
    model, _ = loaded(tmp_path, trained)

    assert model.run({"x": ROWS})["probabilities"].shape == (len(ROWS), 3)


@pytest.mark.parametrize("name", ["model.json", "model.ubj"])
def test_a_file_that_is_cut_off_is_refused_before_the_library_sees_it(tmp_path: Path, name: str) -> None:
    trained = xgboost.XGBClassifier(n_estimators=2, max_depth=2, n_jobs=1).fit(FEATURES, CLASSES)
    trained.save_model(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for kept in range(0, len(whole) - 1, 7):
        assert fault(whole[:kept], f".{name[6:]}")
    (tmp_path / name).write_bytes(whole[: len(whole) // 10])
    with pytest.raises(
        BadArtifactError, match=rf"^{name}: expected an XGBoost model; found a file that is (cut|broken)"
    ):
        Model().load(tmp_path / name, Options())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{L\0\0", "cut off at byte 4"),
        (b"{x", "broken: byte 0x78 at 1"),
        (b"[$x#i\1", "cut off"),
        (b"q", "byte 0x71 at 0"),
    ],
)
def test_what_is_no_ubjson_is_said(content: bytes, reason: str) -> None:
    assert reason in fault(content, ".ubj")


@pytest.mark.parametrize("content", [b'{"a": 1}', b'{"learner": {}}'])
def test_a_broken_file_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.json").write_bytes(content)
    with pytest.raises(BadArtifactError) as caught:
        Model().load(tmp_path / "model.json", Options())

    assert str(caught.value).startswith("model.json: expected an XGBoost model; xgboost says: ")
    assert "Stack trace" not in str(caught.value)
