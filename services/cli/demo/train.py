"""Trains the demo's models: `python -m services.cli.demo.train FOLDER` writes all of it there, a line a step.

A process of its own, so that what runs the mesh never holds a ML framework. The same versions of the libraries give
the same models: every split and every start is seeded.
"""

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import skops.io
import xgboost
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from services.cli.demo import graphs
from services.cli.demo.held_out import HeldOut

_SEED = 7
_HELD_OUT = 0.3
_PIXEL_MAX = 16.0
_RANKER_INPUTS, _RANKER_HIDDEN, _RANKER_ROWS = 32, 64, 256

Split = tuple[NDArray, NDArray, NDArray, NDArray]  # train, test, train labels, test labels


def train(folder: Path, say: Callable[[str], None]) -> None:
    """Write models/MODEL/VERSION/…, held_out.npz, digit.npy and patients.jsonl below `folder`."""
    digits = _digits()
    for version, name, fit in ((1, "model.skops", _sklearn), (2, "model.ubj", _xgboost), (3, "model.onnx", _network)):
        artifact = _artifact(folder, "digits", version, name)
        accuracy = fit(digits, artifact)
        say(f"digits/{version} {artifact.suffix[1:]}: {accuracy:.1%} of {len(digits[3])} held-out images right")
    patients, labels = _tumor(folder, say)
    candidates, scores = _ranker(folder, say)
    held_out = HeldOut(
        digits[1].astype(np.float32),
        digits[3].astype(np.int64),
        patients.astype(np.int64),
        labels.astype(np.int64),
        candidates,
        scores,
    )
    held_out.save(folder / "held_out.npz")
    np.save(folder / "digit.npy", held_out.digits[:1])


def _digits() -> Split:
    data = load_digits()
    split: Split = tuple(  # type: ignore[assignment]
        train_test_split(
            data.data.astype(np.float32),
            data.target.astype(np.int64),
            test_size=_HELD_OUT,
            random_state=_SEED,
            stratify=data.target,
        )
    )
    return split


def _sklearn(split: Split, artifact: Path) -> float:
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500, C=0.1))
    model.fit(split[0], split[2])
    skops.io.dump(model, artifact)
    return float(model.score(split[1], split[3]))


def _xgboost(split: Split, artifact: Path) -> float:
    model = xgboost.XGBClassifier(n_estimators=60, max_depth=4, learning_rate=0.3, random_state=_SEED, n_jobs=1)
    model.fit(split[0], split[2])
    model.get_booster().save_model(artifact)
    return float(model.score(split[1], split[3]))


def _network(split: Split, artifact: Path) -> float:
    model = MLPClassifier((64,), max_iter=40, batch_size=64, learning_rate_init=0.01, random_state=_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # forty rounds are enough to be right
        model.fit(split[0] / _PIXEL_MAX, split[2])
    layers = list(zip(model.coefs_, model.intercepts_, strict=True))
    onnx.save(graphs.classifier(layers, 1 / _PIXEL_MAX), artifact)
    return float(model.score(split[1] / _PIXEL_MAX, split[3]))


def _tumor(folder: Path, say: Callable[[str], None]) -> tuple[NDArray, NDArray]:
    """The held-out patients and their labels; every patient's features are written as rows for the feature store."""
    data = load_breast_cancer()
    patients = np.arange(len(data.target))
    x_train, x_test, y_train, y_test, _, held_out = train_test_split(
        data.data.astype(np.float32),
        data.target.astype(np.int64),
        patients,
        test_size=_HELD_OUT,
        random_state=_SEED,
        stratify=data.target,
    )
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    model.fit(x_train, y_train)
    skops.io.dump(model, _artifact(folder, "tumor", 1, "model.skops"))
    say(f"tumor/1 skops: {model.score(x_test, y_test):.1%} of {len(y_test)} held-out patients right")
    columns = [str(name).replace(" ", "_") for name in data.feature_names]
    with (folder / "patients.jsonl").open("w") as rows:
        for patient, values in zip(patients.tolist(), data.data.tolist(), strict=True):
            rows.write(json.dumps({"entity": patient, "values": dict(zip(columns, values, strict=True))}) + "\n")
    (folder / "columns.json").write_text(json.dumps(columns))
    return held_out, y_test


def _ranker(folder: Path, say: Callable[[str], None]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows of candidates and their scores; the weights are random, as only its speed is of interest."""
    random = np.random.default_rng(_SEED)
    first = random.normal(size=(_RANKER_INPUTS, _RANKER_HIDDEN)).astype(np.float32) / 4
    second = random.normal(size=(_RANKER_HIDDEN, 1)).astype(np.float32) / 4
    onnx.save(graphs.ranker(first, second), _artifact(folder, "ranker", 1, "model.onnx"))
    rows = random.normal(size=(_RANKER_ROWS, _RANKER_INPUTS)).astype(np.float32)
    logits = np.maximum(rows @ first, 0) @ second
    say(f"ranker/1 onnx: {_RANKER_INPUTS} inputs, {_RANKER_HIDDEN} hidden")
    return rows, (1 / (1 + np.exp(-logits)))[:, 0].astype(np.float32)


def _artifact(folder: Path, model: str, version: int, name: str) -> Path:
    path = folder / "models" / model / str(version) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main() -> None:
    train(Path(sys.argv[1]), lambda line: print(line, flush=True))  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main()
