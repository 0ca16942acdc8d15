"""LightGBM models."""

import json
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.lightgbm import Model

FEATURES, CLASSES = load_iris(return_X_y=True)
ROWS = FEATURES[::7].astype(np.float32)
PLAIN = Options()
ALL = Options(outputs=("margin", "leaf", "contributions"))
NAMES = ["model.txt", "model.json"]


def train(features: np.ndarray, values: np.ndarray, objective: str, categorical: Any = "auto", **more: Any) -> Any:
    params = {"objective": objective, "verbose": -1, "num_threads": 1, "num_leaves": 7, **more}
    if objective == "multiclass":
        params["num_class"] = 3
    return lightgbm.train(params, lightgbm.Dataset(features, values, categorical_feature=categorical), 5)


def loaded(folder: Path, trained: Any, name: str, options: Options = PLAIN) -> tuple[Model, Signature]:
    if name == "model.json":
        (folder / name).write_text(json.dumps(trained.dump_model()))
    else:
        trained.save_model(folder / name)
    model = Model()
    return model, model.load(folder / name, options)


@pytest.mark.parametrize("name", NAMES)
def test_many_classes_have_labels_and_probabilities(tmp_path: Path, name: str) -> None:
    trained = train(FEATURES, CLASSES, "multiclass")
    model, signature = loaded(tmp_path, trained, name)
    answer = model.run({"x": ROWS})
    own = trained.predict(ROWS)

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 4)),)
    assert signature.outputs == (TensorSpec("label", "INT64", (-1,)), TensorSpec("probabilities", "FP32", (-1, 3)))
    assert signature.batches
    assert np.array_equal(answer["label"], np.argmax(own, axis=1))
    assert np.array_equal(answer["probabilities"], own.astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_two_classes_answer_as_scikit_learns_wrapper(tmp_path: Path, name: str) -> None:
    trained = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1)
    trained.fit(FEATURES[:100].astype(np.float32), CLASSES[:100])
    model, signature = loaded(tmp_path, trained.booster_, name)
    answer = model.run({"x": ROWS})
    own = trained.booster_.predict(ROWS)

    assert signature.outputs[1].shape == (-1, 2)
    assert np.array_equal(answer["label"], own > 0.5)
    assert np.array_equal(answer["probabilities"], np.stack([1 - own, own], axis=1).astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("boosting", ["gbdt", "dart", "rf"])
def test_a_regressors_doubles_are_its_own_to_the_last_bit(tmp_path: Path, name: str, boosting: str) -> None:
    features, values = load_diabetes(return_X_y=True)
    bagging = {"bagging_freq": 1, "bagging_fraction": 0.7} if boosting == "rf" else {}
    trained = train(features, values, "regression", boosting=boosting, **bagging)
    model, signature = loaded(tmp_path, trained, name, Options(doubles=True))

    assert signature.inputs == (TensorSpec("x", "FP64", (-1, 10)),)
    assert signature.outputs == (TensorSpec("y", "FP64", (-1,)),)
    assert np.array_equal(model.run({"x": features})["y"], trained.predict(features))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("objective", ["multiclass", "regression"])
def test_margins_leaves_and_contributions_equal_its_own(tmp_path: Path, name: str, objective: str) -> None:
    trained = train(FEATURES, CLASSES, objective)
    model, signature = loaded(tmp_path, trained, name, ALL)
    answer = model.run({"x": ROWS})
    contributions = trained.predict(ROWS, pred_contrib=True).astype(np.float32)

    assert [spec.name for spec in signature.outputs[-3:]] == ["margin", "leaf", "contributions"]
    assert np.array_equal(answer["margin"], trained.predict(ROWS, raw_score=True).astype(np.float32))
    assert answer["leaf"].dtype == np.int64
    assert np.array_equal(answer["leaf"], trained.predict(ROWS, pred_leaf=True))
    assert np.allclose(answer["contributions"].reshape(len(ROWS), -1), contributions, rtol=1e-5, atol=1e-6)
    assert np.allclose(answer["contributions"].sum(axis=-1), answer["margin"], atol=1e-5)
    for index in range(len(ROWS)):
        for output, alone in model.run({"x": ROWS[index : index + 1]}).items():
            assert np.array_equal(alone[0], answer[output][index])


@pytest.mark.parametrize("name", NAMES)
def test_missing_values_and_categories_are_followed(tmp_path: Path, name: str) -> None:
    random = np.random.default_rng(0)
    rows = np.stack([random.integers(0, 70, 500), random.random(500), random.random(500)], axis=1)
    rows[::5, 1] = np.nan
    values = np.isin(rows[:, 0], [1, 5, 37, 66]) * 3 + np.nan_to_num(rows[:, 1], nan=2) + rows[:, 2]
    trained = train(rows, values, "regression", [0], min_data_per_group=1, max_cat_to_onehot=1, cat_smooth=0)
    model, _ = loaded(tmp_path, trained, name, Options(doubles=True, outputs=("leaf",)))
    unseen = np.array([[300, np.nan, 0], [-1, 0.5, np.nan], [np.nan, np.nan, np.nan]])
    both = np.concatenate([rows, unseen])
    answer = model.run({"x": both})

    assert "num_cat=1" in trained.model_to_string()
    assert np.array_equal(answer["y"], trained.predict(both))
    assert np.array_equal(answer["leaf"], trained.predict(both, pred_leaf=True))


@pytest.mark.parametrize("name", NAMES)
def test_trees_that_are_one_leaf_answer_it(tmp_path: Path, name: str) -> None:
    trained = train(FEATURES, np.full(150, 2.5), "regression")
    model, _ = loaded(tmp_path, trained, name)

    assert np.array_equal(model.run({"x": ROWS})["y"], trained.predict(ROWS).astype(np.float32))


def test_no_rows_have_no_answers(tmp_path: Path) -> None:
    model, _ = loaded(tmp_path, train(FEATURES, CLASSES, "multiclass"), "model.txt")
    answer = model.run({"x": np.zeros((0, 4), np.float32)})

    assert {name: array.shape for name, array in answer.items()} == {"label": (0,), "probabilities": (0, 3)}


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_text_that_is_cut_off_is_refused_before_the_library_sees_it(tmp_path: Path, share: float) -> None:
    text = train(FEATURES, CLASSES, "multiclass").model_to_string(num_iteration=-1)
    trees = text[: text.index("end of trees")]
    (tmp_path / "model.txt").write_text(trees[: int(len(trees) * share)])
    with pytest.raises(
        BadArtifactError, match=r"^model.txt: expected a LightGBM model; (its trees should|found a head)"
    ):
        Model().load(tmp_path / "model.txt", Options())


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("model.txt", b"these are notes", "found text that begins with b'these are notes'"),
        ("model.json", b'{"name": "tree"}', "it says: lacks 'feature_names'"),
        ("model.json", b'{"name": ', "it says: Expecting value: line 1"),
        ("model.txt", b"tree\r\ntree_sizes=3\r\n\r\nTree=0", "found lines that end in CR LF"),
        ("model.txt", b"tree\ntree_sizes=x\n\nTree=0", "found b'tree_sizes=x' where sizes of trees should be"),
    ],
)
def test_what_is_no_model_is_refused_by_its_name(tmp_path: Path, name: str, content: bytes, found: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadArtifactError) as caught:
        Model().load(tmp_path / name, Options())

    assert str(caught.value).startswith(f"{name}: expected a LightGBM model; {found}")


def test_json_of_linear_trees_is_refused_with_a_hint(tmp_path: Path) -> None:
    trained = train(FEATURES, CLASSES.astype(float), "regression", linear_tree=True)
    with pytest.raises(BadArtifactError, match=r"linear models in its leaves: save it as text with .*'model.txt'"):
        loaded(tmp_path, trained, "model.json")
    model, _ = loaded(tmp_path, trained, "model.txt", Options(doubles=True))

    assert np.array_equal(model.run({"x": FEATURES})["y"], trained.predict(FEATURES))


@pytest.mark.parametrize("names", [["leaf"], ["label", "margin"], ["probabilities"]])
def test_what_nobody_wants_is_not_computed(tmp_path: Path, names: list[str]) -> None:
    model, signature = loaded(tmp_path, train(FEATURES, CLASSES, "multiclass"), NAMES[0], ALL)
    whole, given = model.run({"x": ROWS}), model.run_only({"x": ROWS}, names)
    usual = {"label", "probabilities"}

    assert signature.on_request == ("margin", "leaf", "contributions")
    assert given.keys() == {name for name in whole if name in names or (name in usual and usual & {*names})}
    assert all(np.array_equal(given[name], whole[name]) for name in given)
