"""MLflow's python_function answers as in MLflow itself."""

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from services.core.declared import DeclaredSignature
from services.core.signature import Signature
from services.runtime.backends import BadArtifactError, Options, backend_for
from services.runtime.backends.detect import detect
from services.runtime.examples import of_backend
from services.runtime.warm_up import checked

TABLE = pd.DataFrame({"city": ["Bonn", "Köln", "Ulm"], "age": [31.0, 25.5, 40.0], "visits": [3, 0, 7]})
TENSORS = {
    "city": np.array([text.encode() for text in TABLE["city"]], dtype=object),
    "age": TABLE["age"].to_numpy(),
    "visits": TABLE["visits"].to_numpy(),
}
CODE = """
import mlflow, numpy as np, pandas as pd

class Table(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        score = model_input["age"] * 2 + model_input["visits"]
        return pd.DataFrame({"score": score, "who": model_input["city"] + "!"})

class Sums(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return np.asarray(model_input).sum(axis=1)

mlflow.models.set_model(NAME())
"""


@pytest.fixture(scope="module")
def mlflow() -> Iterator[Any]:
    """MLflow without a word to anybody."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        backend_for("mlflow")  # imports it
        import mlflow.pyfunc  # noqa: PLC0415

        yield mlflow


def save(mlflow: Any, folder: Path, name: str, taken: Any = None, given: Any = None, **more: Any) -> Path:
    """A model from code, with the signature of these."""
    code = folder.with_suffix(".py")
    code.write_text(CODE.replace("NAME", name))
    signature = None if taken is None else mlflow.models.ModelSignature(taken, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.pyfunc.save_model(str(folder), python_model=str(code), signature=signature, pip_requirements=[], **more)
    return folder


def own_model(mlflow: Any, folder: Path) -> Any:
    return mlflow.pyfunc.load_model(str(folder), suppress_warnings=True)


def load(folder: Path, framework: str | None = None, **options: Any) -> tuple[Any, Signature]:
    found = detect(folder, framework)
    model = backend_for(found.framework)
    return model, model.load(found.file, Options(trusted=True, **options))


def test_columns_are_tensors_and_a_table_of_answers_too(tmp_path: Path, mlflow: Any) -> None:
    from mlflow.types import ColSpec, Schema  # noqa: PLC0415

    taken = Schema([ColSpec("string", "city"), ColSpec("double", "age"), ColSpec("long", "visits")])
    given = Schema([ColSpec("double", "score"), ColSpec("string", "who")])
    folder = save(mlflow, tmp_path / "m", "Table", taken, given, input_example=TABLE)
    own = own_model(mlflow, folder).predict(TABLE)

    model, signature = load(folder)
    answers = model.run(TENSORS)
    examples = of_backend(model, signature, 5)

    assert detect(folder).framework == "mlflow"
    assert [str(spec) for spec in signature.inputs] == ["city BYTES[-1]", "age FP64[-1]", "visits INT64[-1]"]
    assert [str(spec) for spec in signature.outputs] == ["score FP64[-1]", "who BYTES[-1]"]
    assert answers["score"].tolist() == own["score"].tolist() == [65.0, 51.0, 87.0]
    assert answers["who"].tolist() == own["who"].tolist() == ["Bonn!", "Köln!", "Ulm!"]
    assert examples.fitting[0]["city"].tolist() == TENSORS["city"].tolist()
    assert checked(model.run, signature, examples=examples.fitting).signature.batches
    model.unload()


def test_a_tensor_without_a_name_is_x_and_what_comes_back_is_y(tmp_path: Path, mlflow: Any) -> None:
    from mlflow.models.signature import infer_signature  # noqa: PLC0415

    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    inferred = infer_signature(rows, rows.sum(axis=1))
    folder = save(mlflow, tmp_path / "m", "Sums", inferred.inputs, inferred.outputs)

    model, signature = load(folder)

    assert [str(spec) for spec in signature.inputs + signature.outputs] == ["x FP32[-1, 4]", "y FP32[-1]"]
    assert model.run({"x": rows})["y"].tolist() == [6.0, 22.0, 38.0]
    assert signature.batches


def test_what_the_model_does_not_say_is_declared_or_seen(tmp_path: Path, mlflow: Any) -> None:
    folder = save(mlflow, tmp_path / "m", "Sums")
    with pytest.raises(
        BadArtifactError, match=r"^MLmodel: it says nothing of its inputs: log the model with a signature"
    ):
        load(folder)

    declared = DeclaredSignature.model_validate({"inputs": {"rows": {"datatype": "FP64", "shape": (-1, 2)}}})
    model, signature = load(folder, declared=declared)

    assert [str(spec) for spec in signature.inputs + signature.outputs] == ["rows FP64[-1, 2]", "y FP64[-1]"]
    assert model.run({"rows": np.array([[1.0, 2.0]])})["y"].tolist() == [3.0]


def test_code_runs_only_where_the_operator_says_so(tmp_path: Path, mlflow: Any) -> None:
    folder = save(mlflow, tmp_path / "m", "Sums")

    with pytest.raises(
        BadArtifactError, match=r"^MLmodel: its python_function is code and would run when loaded: set tr"
    ):
        backend_for("mlflow").load(folder / "MLmodel", Options())


def test_a_model_that_cannot_be_loaded_says_why_without_paths(tmp_path: Path, mlflow: Any) -> None:
    folder = save(mlflow, tmp_path / "m", "Sums")
    code = next(folder.glob("*.py"))
    for text, fault in {
        "import no_such_package": "Failed to import code model from m.py. Error: No module named 'no_such_package'",
        "1 / 0": "Failed to run user code from m.py. Error: division by zero",
    }.items():
        code.write_text(text)
        with pytest.raises(BadArtifactError) as caught:
            load(folder)

        assert str(caught.value).startswith(f"MLmodel: expected a model of MLflow; it says: MlflowException: {fault}")
        assert str(tmp_path) not in str(caught.value)


def test_code_that_needs_what_is_not_there_says_what(tmp_path: Path, mlflow: Any) -> None:
    saved = mlflow.models.Model()
    saved.add_flavor("python_function", loader_module="not_installed_here")
    saved.save(str(tmp_path / "MLmodel"))

    with pytest.raises(
        BadArtifactError, match=r"^MLmodel: its python_function imports what this pod has not installed: N"
    ):
        load(tmp_path)


def test_an_estimator_that_mlflow_saved_is_served_by_its_own_backend(tmp_path: Path, mlflow: Any) -> None:
    table, species = load_iris(return_X_y=True, as_frame=True)
    estimator = LogisticRegression(max_iter=500).fit(table, species)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(estimator))
    saved = mlflow.models.Model()
    saved.add_flavor("python_function", loader_module="mlflow.sklearn", model_path="model.pkl", predict_fn="predict")
    saved.add_flavor("sklearn", pickled_model="model.pkl", serialization_format="pickle", sklearn_version="1.9.1")
    saved.save(str(tmp_path / "MLmodel"))
    own = own_model(mlflow, tmp_path).predict(table)

    model, signature = load(tmp_path)

    assert signature.platform == "sklearn"
    assert model.run({"x": table.to_numpy(np.float32)})["label"].tolist() == own.tolist()
