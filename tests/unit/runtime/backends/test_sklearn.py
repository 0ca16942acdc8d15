"""scikit-learn models."""

import os
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import skops.io
from sklearn.cluster import KMeans
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from services.core.signature import TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.sklearn import Model
from tests.support.mischief import Mischief

FEATURES, CLASSES = load_iris(return_X_y=True)
ROWS = FEATURES[::7].astype(np.float32)
NAMES = np.array(["setosa", "versicolor", "virginica"])
TRUSTED = Options(trusted=True)


def loaded(folder: Path, estimator: object) -> tuple[Model, Any]:
    skops.io.dump(estimator, folder / "model.skops")
    model = Model()
    return model, model.load(folder / "model.skops", Options())


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        RandomForestClassifier(5, n_jobs=2, random_state=0),
        HistGradientBoostingClassifier(max_iter=5),
        KNeighborsClassifier(3),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_classifiers_answers_equal_its_own(tmp_path: Path, estimator: Any) -> None:
    estimator.fit(FEATURES, CLASSES)
    model, signature = loaded(tmp_path, estimator)
    answer = model.run({"x": ROWS})

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 4)),)
    assert signature.outputs == (TensorSpec("label", "INT64", (-1,)), TensorSpec("probabilities", "FP32", (-1, 3)))
    assert signature.batches
    assert answer["label"].dtype == np.int64
    assert np.array_equal(answer["label"], estimator.predict(ROWS))
    assert answer["probabilities"].dtype == np.float32
    assert np.array_equal(answer["probabilities"], estimator.predict_proba(ROWS).astype(np.float32))


def test_named_classes_come_as_text(tmp_path: Path) -> None:
    estimator = LogisticRegression(max_iter=500).fit(FEATURES, NAMES[CLASSES])
    model, signature = loaded(tmp_path, estimator)

    assert signature.outputs[0] == TensorSpec("label", "BYTES", (-1,))
    assert model.run({"x": ROWS})["label"].tolist() == estimator.predict(ROWS).tolist()


def test_a_classifier_without_probabilities_gives_labels_only(tmp_path: Path) -> None:
    estimator = SVC().fit(FEATURES, CLASSES)
    model, signature = loaded(tmp_path, estimator)
    answer = model.run({"x": ROWS})

    assert [spec.name for spec in signature.outputs] == ["label"]
    assert np.array_equal(answer["label"], estimator.predict(ROWS))


@pytest.mark.parametrize("targets", [1, 2])
def test_a_regressors_answers_equal_its_own(tmp_path: Path, targets: int) -> None:
    features, values = load_diabetes(return_X_y=True)
    values = values if targets == 1 else np.stack([values, -values], axis=1)
    estimator = LinearRegression().fit(features, values)
    model, signature = loaded(tmp_path, estimator)
    rows = features[:9].astype(np.float32)
    answer = model.run({"x": rows})["y"]

    assert signature.outputs == (TensorSpec("y", "FP32", (-1,) if targets == 1 else (-1, 2)),)
    assert np.array_equal(answer, estimator.predict(rows).astype(np.float32))


def test_clusters_come_as_values(tmp_path: Path) -> None:
    estimator = KMeans(3, n_init=1, random_state=0).fit(FEATURES)
    model, _ = loaded(tmp_path, estimator)

    assert model.run({"x": ROWS})["y"].tolist() == estimator.predict(ROWS.astype(np.float64)).tolist()


def test_a_pickle_needs_the_operators_word(tmp_path: Path) -> None:
    joblib.dump(Mischief(), tmp_path / "model.joblib")
    with pytest.raises(BadArtifactError, match=r"model.joblib is a pickle and would run code when loaded"):
        Model().load(tmp_path / "model.joblib", Options())
    model = Model()
    signature = model.load(tmp_path / "model.joblib", TRUSTED)

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 2)),)
    assert model.run({"x": np.ones((2, 2), np.float32)})["y"].tolist() == [2, 2]


def test_foreign_types_in_a_skops_file_are_refused_by_name(tmp_path: Path) -> None:
    skops.io.dump(make_pipeline(FunctionTransformer(os.path.join), LinearRegression()), tmp_path / "model.skops")
    with pytest.raises(BadArtifactError) as caught:
        Model().load(tmp_path / "model.skops", Options())

    assert str(caught.value) == "model.skops: expected types of sklearn and numpy only, found posixpath.join"


def test_a_function_of_numpy_is_no_trusted_type(tmp_path: Path) -> None:
    skops.io.dump(FunctionTransformer(np.testing.assert_equal), tmp_path / "model.skops")
    with pytest.raises(BadArtifactError, match=r"found numpy.testing"):
        Model().load(tmp_path / "model.skops", Options())


@pytest.mark.parametrize(("name", "content"), [("model.skops", b"PK\3\4broken"), ("model.joblib", b"\x80\x04broken")])
def test_a_broken_file_is_refused_by_its_name(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadArtifactError, match=f"^{name}: expected a (skops|joblib) file"):
        Model().load(tmp_path / name, TRUSTED)


def test_an_object_that_can_do_nothing_is_refused(tmp_path: Path) -> None:
    skops.io.dump(KFold(), tmp_path / "model.skops")
    with pytest.raises(BadArtifactError, match=r"expected an object with predict or transform, found a sklearn.*KFold"):
        Model().load(tmp_path / "model.skops", Options())


@pytest.mark.parametrize("estimator", [LogisticRegression(), LinearRegression(), StandardScaler()])
def test_an_estimator_that_was_never_fitted_is_refused(tmp_path: Path, estimator: Any) -> None:
    with pytest.raises(
        BadArtifactError, match=rf"model.skops: expected a fitted.*{type(estimator).__name__} that never"
    ):
        loaded(tmp_path, estimator)


def test_classes_that_are_mixed_are_refused(tmp_path: Path) -> None:
    estimator = LogisticRegression(max_iter=500).fit(FEATURES, CLASSES)
    estimator.classes_ = np.array(["a", 1, None], dtype=object)
    with pytest.raises(BadArtifactError, match=r"all numbers or all text, found objects: NoneType, int"):
        loaded(tmp_path, estimator)
