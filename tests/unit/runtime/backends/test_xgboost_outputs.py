"""What else XGBoost models give, and the values that they take as missing or as categories."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.datasets import load_iris

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.xgboost import Model

FEATURES, CLASSES = load_iris(return_X_y=True)
FEATURES = FEATURES.astype(np.float32)
ROWS = FEATURES[::7]
ALL = Options(outputs=("margin", "leaf", "contributions"))
FOREST = {"num_parallel_tree": 2, "max_depth": 3}


def loaded(folder: Path, trained: Any, options: Options = ALL) -> tuple[Model, Signature]:
    trained.save_model(folder / "model.ubj")
    model = Model()
    return model, model.load(folder / "model.ubj", options)


def train(data: xgboost.DMatrix, objective: str, **params: Any) -> xgboost.Booster:
    classes = {"num_class": 3} if objective.startswith("multi") else {}
    return xgboost.train({"objective": objective, "nthread": 1, **classes, **params}, data, 4)


@pytest.mark.parametrize("objective", ["multi:softprob", "multi:softmax", "reg:squarederror"])
@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_margins_leaves_and_contributions_equal_its_own(tmp_path: Path, objective: str, booster: str) -> None:
    trained = train(xgboost.DMatrix(FEATURES, CLASSES), objective, booster=booster, **FOREST)
    model, signature = loaded(tmp_path, trained)
    answer = model.run({"x": ROWS})
    data = xgboost.DMatrix(ROWS)
    leaves = trained.predict(data, pred_leaf=True).reshape(len(ROWS), -1)

    assert [spec.name for spec in signature.outputs[-3:]] == ["margin", "leaf", "contributions"]
    assert np.array_equal(answer["margin"], trained.predict(data, output_margin=True))
    assert answer["leaf"].dtype == np.int64
    assert np.array_equal(answer["leaf"], leaves)
    assert signature.outputs[-2] == TensorSpec("leaf", "INT64", (-1, leaves.shape[1]))
    assert np.array_equal(answer["contributions"], trained.predict(data, pred_contribs=True))
    assert np.allclose(answer["contributions"].sum(axis=-1), answer["margin"], atol=1e-5)
    assert all(answer[spec.name].shape[1:] == spec.shape[1:] for spec in signature.outputs)


def test_each_row_alone_is_the_same(tmp_path: Path) -> None:
    model, _ = loaded(tmp_path, train(xgboost.DMatrix(FEATURES, CLASSES), "multi:softprob"))
    together = model.run({"x": ROWS})
    for index in range(len(ROWS)):
        for name, answer in model.run({"x": ROWS[index : index + 1]}).items():
            assert np.array_equal(answer[0], together[name][index])


def test_a_linear_model_gives_all_but_leaves(tmp_path: Path) -> None:
    trained = train(xgboost.DMatrix(FEATURES, CLASSES), "multi:softprob", booster="gblinear")
    model, _ = loaded(tmp_path, trained, Options(outputs=("contributions", "margin")))
    answer = model.run({"x": ROWS})
    data = xgboost.DMatrix(ROWS)

    assert np.array_equal(answer["probabilities"], trained.predict(data))
    assert np.array_equal(answer["margin"], trained.predict(data, output_margin=True))
    assert np.array_equal(answer["contributions"], trained.predict(data, pred_contribs=True))
    with pytest.raises(
        BadArtifactError, match=r"output 'leaf' is asked for; it can give margin, contributions besides"
    ):
        loaded(tmp_path, trained)


def test_nan_is_a_missing_value(tmp_path: Path) -> None:
    gaps = FEATURES.copy()
    gaps[::3, 2] = np.nan
    trained = train(xgboost.DMatrix(gaps, CLASSES), "multi:softprob")
    model, _ = loaded(tmp_path, trained)
    answer = model.run({"x": gaps})

    assert np.array_equal(answer["probabilities"], trained.predict(xgboost.DMatrix(gaps)))
    assert np.array_equal(answer["leaf"], trained.predict(xgboost.DMatrix(gaps), pred_leaf=True))


def test_categories_are_their_codes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = np.stack([random.integers(0, 12, 200), random.random(200)], axis=1).astype(np.float32)
    values = np.isin(rows[:, 0], [1, 5, 7]) * 3 + rows[:, 1]
    data = xgboost.DMatrix(rows, values, feature_types=["c", "q"], enable_categorical=True)
    trained = train(data, "reg:squarederror", max_cat_to_onehot=1)
    model, _ = loaded(tmp_path, trained)
    unseen = np.array([[40, 0.5], [np.nan, 0.5]], np.float32)
    answer, of_unseen = model.run({"x": rows}), model.run({"x": unseen})
    own = trained.predict(xgboost.DMatrix(unseen, feature_types=["c", "q"], enable_categorical=True))

    assert np.array_equal(answer["y"], trained.predict(data))
    assert np.array_equal(answer["leaf"], trained.predict(data, pred_leaf=True))
    assert np.array_equal(of_unseen["y"], own)


def test_several_labels_have_a_probability_each(tmp_path: Path) -> None:
    labels = np.stack([CLASSES == 0, CLASSES > 1], axis=1).astype(int)
    trained = xgboost.XGBClassifier(n_estimators=4, n_jobs=1).fit(FEATURES, labels)
    model, signature = loaded(tmp_path, trained, Options())
    answer = model.run({"x": ROWS})

    assert signature.outputs == (TensorSpec("label", "INT64", (-1, 2)), TensorSpec("probabilities", "FP32", (-1, 2)))
    assert np.array_equal(answer["label"], trained.predict(ROWS))
    assert np.array_equal(answer["probabilities"], trained.predict_proba(ROWS))


def test_no_rows_have_no_answers(tmp_path: Path) -> None:
    model, _ = loaded(tmp_path, train(xgboost.DMatrix(FEATURES, CLASSES), "multi:softprob"))
    answer = model.run({"x": np.zeros((0, 4), np.float32)})

    assert {name: array.shape[0] for name, array in answer.items()} == dict.fromkeys(answer, 0)


def test_models_side_by_side_in_threads_answer_as_one_by_one(tmp_path: Path) -> None:
    trained = train(xgboost.DMatrix(FEATURES, CLASSES), "multi:softprob")
    models = [loaded(tmp_path, trained)[0] for _ in range(4)]
    serial = models[0].run({"x": FEATURES})
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: models[number % 4].run({"x": FEATURES}), range(4)))

    assert all(np.array_equal(answer[name], serial[name]) for answer in answers for name in serial)


@pytest.mark.parametrize("names", [["margin"], ["label"], ["leaf", "probabilities"], ["label", "margin"]])
def test_what_nobody_wants_is_not_computed(tmp_path: Path, names: list[str]) -> None:
    model, signature = loaded(tmp_path, train(xgboost.DMatrix(FEATURES, CLASSES), "multi:softprob"))
    whole, given = model.run({"x": ROWS}), model.run_only({"x": ROWS}, names)
    usual = {"label", "probabilities"}

    assert signature.on_request == ("margin", "leaf", "contributions")
    assert given.keys() == {name for name in whole if name in names or (name in usual and usual & {*names})}
    assert all(np.array_equal(given[name], whole[name]) for name in given)
