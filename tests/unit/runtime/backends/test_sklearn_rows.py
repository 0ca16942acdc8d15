"""What estimators of scikit-learn take: text, categories, and tables whose columns have names."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError, ModelError, Options
from services.runtime.backends.sklearn import Model
from services.runtime.examples import of_backend
from services.runtime.warm_up import checked

TABLE = pd.DataFrame(
    {
        "city": ["Bonn", "Köln", "Bonn", "Ulm", "Köln", "Ulm"],
        "age": [31.0, 25.5, 40.0, 19.0, 66.0, 52.0],
        "note": ["late again", "on time", "late", "on time", "never late", "late"],
        "unused": [1, 2, 3, 4, 5, 6],
    }
)
BOUGHT = np.array(["no", "yes", "no", "yes", "yes", "no"])


def loaded(folder: Path, estimator: object) -> tuple[Model, Signature]:
    skops.io.dump(estimator, folder / "model.skops")
    model = Model()
    return model, model.load(folder / "model.skops", Options())


def text(values: Any) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = [value.encode() for value in values]
    return array


def table_model() -> Any:
    columns = ColumnTransformer(
        [
            (
                "city",
                make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")),
                ["city"],
            ),
            ("age", StandardScaler(), ["age"]),
            ("note", TfidfVectorizer(), "note"),
        ]
    )
    return make_pipeline(columns, LogisticRegression())


@pytest.mark.parametrize("search", [False, True])
def test_a_table_has_an_input_for_each_column_that_is_used(tmp_path: Path, search: bool) -> None:  # noqa: FBT001
    estimator = table_model()
    if search:
        estimator = GridSearchCV(estimator, {"logisticregression__C": [0.5, 2]}, cv=2)
    estimator.fit(TABLE, BOUGHT)
    model, signature = loaded(tmp_path, estimator)
    answer = model.run({"age": TABLE["age"].to_numpy(), "note": text(TABLE["note"]), "city": text(TABLE["city"])})

    assert signature.inputs == (
        TensorSpec("city", "BYTES", (-1,)),
        TensorSpec("age", "FP64", (-1,)),
        TensorSpec("note", "BYTES", (-1,)),
    )
    assert signature.outputs == (TensorSpec("label", "BYTES", (-1,)), TensorSpec("probabilities", "FP32", (-1, 2)))
    assert answer["label"].tolist() == estimator.predict(TABLE).tolist()
    assert np.array_equal(answer["probabilities"], estimator.predict_proba(TABLE).astype(np.float32))


def test_a_tables_row_alone_has_the_same_answer(tmp_path: Path) -> None:
    estimator = table_model().fit(TABLE, BOUGHT)
    model, _ = loaded(tmp_path, estimator)
    own = estimator.predict_proba(TABLE)
    for index, row in enumerate(TABLE.itertuples()):
        answer = model.run({"age": np.array([row.age]), "note": text([row.note]), "city": text([row.city])})

        assert np.allclose(answer["probabilities"][0], own[index], rtol=1e-5)


def test_numbers_fitted_with_names_are_one_matrix_in_their_order(tmp_path: Path) -> None:
    numbers = TABLE[["age", "unused"]]
    estimator = RandomForestClassifier(3, random_state=0).fit(numbers, BOUGHT)
    model, signature = loaded(tmp_path, estimator)

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 2)),)
    assert model.run({"x": numbers.to_numpy(np.float32)})["label"].tolist() == estimator.predict(numbers).tolist()


def test_a_vectorizer_takes_one_text_a_row(tmp_path: Path) -> None:
    estimator = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TABLE["note"], BOUGHT)
    model, signature = loaded(tmp_path, estimator)

    assert signature.inputs == (TensorSpec("x", "BYTES", (-1,)),)
    assert signature.outputs[1] == TensorSpec("probabilities", "FP32", (-1, 2))
    assert model.run({"x": text(TABLE["note"])})["label"].tolist() == estimator.predict(TABLE["note"]).tolist()
    with pytest.raises(ModelError, match=r"input 'x' is text, .* byte 0xff at offset 0"):
        model.run({"x": np.array([b"\xff"], dtype=object)})


def test_columns_of_categories_are_one_matrix_of_text(tmp_path: Path) -> None:
    rows = TABLE[["city", "note"]].to_numpy(object)
    estimator = make_pipeline(OneHotEncoder(), LinearRegression()).fit(rows, TABLE["age"])
    model, signature = loaded(tmp_path, estimator)
    sent = np.stack([text(rows[:, 0]), text(rows[:, 1])], axis=1)

    assert signature.inputs == (TensorSpec("x", "BYTES", (-1, 2)),)
    assert signature.outputs == (TensorSpec("y", "FP32", (-1,)),)
    assert np.array_equal(model.run({"x": sent})["y"], estimator.predict(rows).astype(np.float32))


def test_categories_that_are_numbers_are_tried_with_a_known_one(tmp_path: Path) -> None:
    rows = np.array([[3, 7], [4, 8], [3, 8]])
    estimator = make_pipeline(OrdinalEncoder(), LinearRegression()).fit(rows, np.stack([rows[:, 0]] * 2, axis=1))
    model, signature = loaded(tmp_path, estimator)

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 2)),)
    assert signature.outputs == (TensorSpec("y", "FP32", (-1, 2)),)
    assert np.allclose(model.run({"x": rows.astype(np.float32)})["y"], estimator.predict(rows))


def test_text_and_numbers_in_one_matrix_are_refused_with_what_would_do(tmp_path: Path) -> None:
    rows = TABLE[["city", "unused"]].to_numpy(object)
    estimator = make_pipeline(OneHotEncoder(), LinearRegression()).fit(rows, TABLE["age"])
    with pytest.raises(BadArtifactError, match=r"model.skops: expected columns of one kind, found 1 of text and 1 of"):
        loaded(tmp_path, estimator)


def test_a_pod_without_pandas_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skops.io.dump(table_model().fit(TABLE, BOUGHT), tmp_path / "model.skops")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadArtifactError, match=r"^model.skops takes its columns by name and so needs pandas"):
        Model().load(tmp_path / "model.skops", Options())


def strict_table() -> Any:
    columns = ColumnTransformer([("city", OneHotEncoder(), ["city"]), ("age", StandardScaler(), ["age"])])
    return make_pipeline(columns, LogisticRegression()).fit(TABLE, BOUGHT)


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(OneHotEncoder(), LinearRegression()).fit(TABLE[["city", "note"]].to_numpy(object), TABLE["age"]),
        make_pipeline(OrdinalEncoder(), LinearRegression()).fit(np.array([[3, 7], [4, 8], [3, 8]]), [1, 2, 3]),
        strict_table(),
        make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TABLE["note"], BOUGHT),
    ],
    ids=["text", "numbers", "table", "words"],
)
def test_what_takes_only_what_it_has_learnt_batches_too(tmp_path: Path, estimator: Any) -> None:
    model, signature = loaded(tmp_path, estimator)
    examples = of_backend(model, signature, 10)
    found = checked(model.run, signature, None, examples.fitting)

    assert (len(examples.fitting), examples.left_out) == (2, 0)
    assert (found.signature.batches, found.note) == (True, "")
