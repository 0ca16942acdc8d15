"""What else estimators of scikit-learn give: asked-for outputs, several labels, doubles."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.sklearn import Model

FEATURES, CLASSES = load_iris(return_X_y=True)
ROWS = FEATURES[::7].astype(np.float32)
PLAIN = Options()


def loaded(folder: Path, estimator: object, options: Options = PLAIN) -> tuple[Model, Signature]:
    skops.io.dump(estimator, folder / "model.skops")
    model = Model()
    return model, model.load(folder / "model.skops", options)


def assert_each_row_alone_is_the_same(model: Model, rows: np.ndarray) -> None:
    together = model.run({"x": rows})
    alone = [model.run({"x": rows[index : index + 1]}) for index in range(len(rows))]
    for name, answer in together.items():
        joined = np.concatenate([each[name] for each in alone])
        assert np.allclose(joined, answer, rtol=1e-5) if answer.dtype.kind == "f" else np.array_equal(joined, answer)


@pytest.mark.parametrize(
    "estimator", [SVC(), make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))], ids=["svc", "pipeline"]
)
def test_decisions_come_after_the_usual_outputs_when_asked_for(tmp_path: Path, estimator: Any) -> None:
    estimator.fit(FEATURES, CLASSES)
    model, signature = loaded(tmp_path, estimator, Options(outputs=("decision_function",)))
    answer = model.run({"x": ROWS})

    assert signature.outputs[0].name == "label"
    assert signature.outputs[-1] == TensorSpec("decision_function", "FP32", (-1, 3))
    assert np.array_equal(answer["decision_function"], estimator.decision_function(ROWS).astype(np.float32))
    assert_each_row_alone_is_the_same(model, ROWS)


def test_outliers_are_values_and_scores(tmp_path: Path) -> None:
    estimator = IsolationForest(n_estimators=5, random_state=0).fit(FEATURES)
    model, signature = loaded(tmp_path, estimator, Options(outputs=("decision_function",)))
    answer = model.run({"x": ROWS})

    assert signature.outputs == (TensorSpec("y", "FP32", (-1,)), TensorSpec("decision_function", "FP32", (-1,)))
    assert answer["y"].tolist() == estimator.predict(ROWS).tolist()
    assert np.array_equal(answer["decision_function"], estimator.decision_function(ROWS).astype(np.float32))


def test_distances_to_clusters_can_be_asked_for(tmp_path: Path) -> None:
    estimator = KMeans(3, n_init=1, random_state=0).fit(FEATURES)
    model, signature = loaded(tmp_path, estimator, Options(outputs=("transform",)))
    own = estimator.transform(ROWS.astype(np.float64)).astype(np.float32)

    assert signature.outputs[1] == TensorSpec("transform", "FP32", (-1, 3))
    assert np.array_equal(model.run({"x": ROWS})["transform"], own)


@pytest.mark.parametrize("estimator", [StandardScaler(), PCA(2), KBinsDiscretizer(3, quantile_method="linear")])
def test_what_only_transforms_gives_that(tmp_path: Path, estimator: Any) -> None:
    estimator.fit(FEATURES)
    model, signature = loaded(tmp_path, estimator)
    own = estimator.transform(ROWS)
    own = own.toarray() if hasattr(own, "toarray") else own

    assert signature.outputs == (TensorSpec("transform", "FP32", (-1, own.shape[1])),)
    assert np.array_equal(model.run({"x": ROWS})["transform"], own.astype(np.float32))
    assert_each_row_alone_is_the_same(model, ROWS)


def test_an_output_that_it_cannot_give_is_refused_with_those_it_can(tmp_path: Path) -> None:
    estimator = LogisticRegression(max_iter=500).fit(FEATURES, CLASSES)
    with pytest.raises(BadArtifactError) as caught:
        loaded(tmp_path, estimator, Options(outputs=("leaf",)))

    assert str(caught.value) == (
        "model.skops: output 'leaf' is asked for; it can give decision_function besides the usual"
    )


@pytest.mark.parametrize(
    "estimator",
    [
        MultiOutputClassifier(LogisticRegression(max_iter=500)),
        RandomForestClassifier(5, random_state=0),
        KNeighborsClassifier(3),
        DecisionTreeClassifier(random_state=0),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_several_labels_are_columns_with_probabilities_of_their_own(tmp_path: Path, estimator: Any) -> None:
    estimator.fit(FEATURES, np.stack([CLASSES, CLASSES > 0], axis=1))
    model, signature = loaded(tmp_path, estimator)
    answer = model.run({"x": ROWS})

    assert signature.outputs == (
        TensorSpec("label", "INT64", (-1, 2)),
        TensorSpec("probabilities_0", "FP32", (-1, 3)),
        TensorSpec("probabilities_1", "FP32", (-1, 2)),
    )
    assert np.array_equal(answer["label"], estimator.predict(ROWS))
    for number, own in enumerate(estimator.predict_proba(ROWS)):
        assert np.array_equal(answer[f"probabilities_{number}"], own.astype(np.float32))
    assert_each_row_alone_is_the_same(model, ROWS)


@pytest.mark.parametrize("estimator", [MLPClassifier((4,), max_iter=3), ClassifierChain(DecisionTreeClassifier())])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_labels_share_one_table_of_probabilities_where_the_estimator_does(tmp_path: Path, estimator: Any) -> None:
    estimator.fit(FEATURES, np.stack([CLASSES == 0, CLASSES > 0], axis=1).astype(int))
    model, signature = loaded(tmp_path, estimator)
    answer = model.run({"x": ROWS})

    assert signature.outputs == (TensorSpec("label", "INT64", (-1, 2)), TensorSpec("probabilities", "FP32", (-1, 2)))
    assert np.array_equal(answer["label"], estimator.predict(ROWS))
    assert np.array_equal(answer["probabilities"], estimator.predict_proba(ROWS).astype(np.float32))


def test_doubles_go_in_and_come_out_where_they_are_wanted(tmp_path: Path) -> None:
    estimator = LogisticRegression(max_iter=500).fit(FEATURES, CLASSES)
    model, signature = loaded(tmp_path, estimator, Options(doubles=True))
    answer = model.run({"x": FEATURES})

    assert signature.inputs == (TensorSpec("x", "FP64", (-1, 4)),)
    assert signature.outputs[1] == TensorSpec("probabilities", "FP64", (-1, 3))
    assert np.array_equal(answer["probabilities"], estimator.predict_proba(FEATURES))


def test_no_rows_have_no_answers(tmp_path: Path) -> None:
    model, _ = loaded(tmp_path, LogisticRegression(max_iter=500).fit(FEATURES, CLASSES))
    answer = model.run({"x": np.zeros((0, 4), np.float32)})

    assert {name: array.shape for name, array in answer.items()} == {"label": (0,), "probabilities": (0, 3)}


@pytest.mark.parametrize("names", [["transform"], ["label"], ["transform", "probabilities"]])
def test_what_nobody_wants_is_not_computed(tmp_path: Path, names: list[str]) -> None:
    estimator = make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()).fit(FEATURES, CLASSES)
    model, signature = loaded(tmp_path, estimator, Options(outputs=("decision_function", "transform")))
    whole, given = model.run({"x": ROWS}), model.run_only({"x": ROWS}, names)
    usual = {"label", "probabilities"}

    assert signature.on_request == ("decision_function", "transform")
    assert given.keys() == {name for name in whole if name in names or (name in usual and usual & {*names})}
    assert all(np.array_equal(given[name], whole[name]) for name in given)
