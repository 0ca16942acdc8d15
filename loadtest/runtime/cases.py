"""One small model for each framework: how it is made, what it is asked, and how its framework runs it without us.

Frameworks are imported where they are used: only the process that runs the bare calls has them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Inputs = dict[str, NDArray[Any]]
Call = Callable[[Inputs], Any]

SEED = 7
_WORDS = ("the", "model", "runs", "a", "batch", "of", "rows", "and", "waits", "for", "worker", "late")
_CODE = """
import numpy as np

class Model:
    inputs = {"x": ("FP32", [-1, 32])}
    outputs = {"norm": ("FP32", [-1])}

    def predict(self, inputs):
        return {"norm": np.sqrt(np.square(inputs["x"]).sum(axis=1))}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A framework's model. `make` writes it into a folder and gives its artifact, `bare` loads it and gives a call."""

    framework: str
    what: str  # for the reader
    needs: str  # a module
    make: Callable[[Path], Path]
    bare: Callable[[Path], Call]
    inputs: Callable[[int], Inputs]
    fields: Mapping[str, Any] = field(default_factory=dict)  # of the worker's Job
    spec: Mapping[str, Any] = field(default_factory=dict)  # of the model in etcd

    @property
    def is_installed(self) -> bool:
        return find_spec(self.needs) is not None


def _numbers(columns: int, name: str = "x") -> Callable[[int], Inputs]:
    def rows(count: int) -> Inputs:
        return {name: np.random.default_rng(SEED).normal(size=(count, columns)).astype(np.float32)}

    return rows


def _digits(count: int) -> Inputs:
    return {"x": np.random.default_rng(SEED).integers(0, 17, (count, 64)).astype(np.float32)}


def _texts(count: int) -> Inputs:
    rng = np.random.default_rng(SEED)
    texts = np.empty(count, dtype=object)
    texts[:] = [" ".join(rng.choice(_WORDS, 12)).encode() for _ in range(count)]
    return {"text": texts}


def _make_onnx(folder: Path) -> Path:
    import onnx  # noqa: PLC0415

    from services.cli.demo.graphs import ranker  # noqa: PLC0415

    rng = np.random.default_rng(SEED)
    first, second = (rng.normal(size=shape).astype(np.float32) for shape in ((32, 64), (64, 1)))
    onnx.save(ranker(first, second / 8), folder / "model.onnx")
    return folder / "model.onnx"


def _bare_onnx(file: Path) -> Call:
    import onnxruntime  # noqa: PLC0415

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, inputs)


def _make_sklearn(folder: Path) -> Path:
    import skops.io  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    pixels, digits = load_digits(return_X_y=True)
    trained = make_pipeline(StandardScaler(), LogisticRegression(max_iter=50, tol=0.1)).fit(pixels, digits)
    skops.io.dump(trained, folder / "model.skops")
    return folder / "model.skops"


def _bare_sklearn(file: Path) -> Call:
    import skops.io  # noqa: PLC0415

    estimator = skops.io.load(file, trusted=skops.io.get_untrusted_types(file=file))
    return lambda inputs: (estimator.predict(inputs["x"]), estimator.predict_proba(inputs["x"]))


def _make_xgboost(folder: Path) -> Path:
    import xgboost  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415

    pixels, digits = load_digits(return_X_y=True)
    parameters = {"objective": "multi:softprob", "num_class": 10, "max_depth": 4, "nthread": 1}
    xgboost.train(parameters, xgboost.DMatrix(pixels, digits), 5).save_model(folder / "model.ubj")
    return folder / "model.ubj"


def _bare_xgboost(file: Path) -> Call:
    import xgboost  # noqa: PLC0415

    booster = xgboost.Booster({"nthread": 1}, model_file=str(file))
    return lambda inputs: booster.inplace_predict(inputs["x"]).argmax(axis=1)


def _make_lightgbm(folder: Path) -> Path:
    import lightgbm  # noqa: PLC0415
    from sklearn.datasets import load_digits  # noqa: PLC0415

    parameters = {"objective": "multiclass", "num_class": 10, "num_leaves": 15, "num_threads": 1, "verbose": -1}
    lightgbm.train(parameters, lightgbm.Dataset(*load_digits(return_X_y=True)), 5).save_model(folder / "model.txt")
    return folder / "model.txt"


def _bare_lightgbm(file: Path) -> Call:
    import lightgbm  # noqa: PLC0415

    booster = lightgbm.Booster(model_file=str(file))
    return lambda inputs: booster.predict(inputs["x"], num_threads=1).argmax(axis=1)


def _make_python(folder: Path) -> Path:
    (folder / "model.py").write_text(_CODE)
    return folder / "model.py"


def _bare_python(file: Path) -> Call:
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)  # noqa: S102 - our own text, from above
    return names["Model"]().predict  # type: ignore[no-any-return]


def _make_torch(folder: Path) -> Path:
    import torch  # noqa: PLC0415

    torch.manual_seed(SEED)
    layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1), torch.nn.Sigmoid()]
    program = torch.export.export(
        torch.nn.Sequential(*layers).eval(),
        (torch.zeros(2, 32),),
        dynamic_shapes=({0: torch.export.Dim("n", min=1, max=4096)},),
    )
    torch.export.save(program, folder / "model.pt2")
    return folder / "model.pt2"


def _bare_torch(file: Path) -> Call:
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    module = torch.export.load(file).module()

    def call(inputs: Inputs) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(inputs["input"])).numpy()

    return call


def _make_tensorflow(folder: Path) -> Path:
    import tensorflow as tf  # noqa: PLC0415

    rng = np.random.default_rng(SEED)
    module = tf.Module()
    first, second = (tf.Variable(rng.normal(size=shape).astype(np.float32)) for shape in ((32, 64), (64, 1)))
    module.weights = (first, second)
    score = tf.function(
        lambda x: {"y": tf.sigmoid(tf.nn.relu(x @ first) @ second)},
        input_signature=[tf.TensorSpec([None, 32], tf.float32, name="x")],
    )
    tf.saved_model.save(module, str(folder), signatures={"serving_default": score})
    return folder / "saved_model.pb"


def _bare_tensorflow(file: Path) -> Call:
    import tensorflow as tf  # noqa: PLC0415

    loaded = tf.saved_model.load(str(file.parent))
    score = loaded.signatures["serving_default"]
    return lambda inputs: (loaded, score(x=tf.constant(inputs["x"]))["y"].numpy())


def _make_transformers(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast  # noqa: PLC0415

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*special, *_WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {f"{role}_token": f"[{token}]" for role, token in _ROLES.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        max_position_embeddings=64, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1},
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder / "config.json"


_ROLES = {"pad": "PAD", "unk": "UNK", "cls": "CLS", "sep": "SEP", "mask": "MASK"}


def _bare_transformers(file: Path) -> Call:
    import torch  # noqa: PLC0415
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(file.parent)
    model = AutoModelForSequenceClassification.from_pretrained(file.parent).eval()

    def call(inputs: Inputs) -> Any:
        texts = [text.decode() for text in inputs["text"]]
        with torch.inference_mode():
            encoded = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            return model(**encoded).logits.softmax(-1).numpy()

    return call


_TRUSTED = {"trusted": True}
CASES = (
    Case("onnx", "two layers, 32 to 64 to 1", "onnxruntime", _make_onnx, _bare_onnx, _numbers(32)),
    Case("sklearn", "scaler and logistic regression, 64 to 10", "sklearn", _make_sklearn, _bare_sklearn, _digits),
    Case("xgboost", "50 trees, 64 to 10", "xgboost", _make_xgboost, _bare_xgboost, _digits),
    Case("lightgbm", "50 trees, 64 to 10", "lightgbm", _make_lightgbm, _bare_lightgbm, _digits),
    Case(
        "python", "a norm in numpy, 32 to 1", "packaging", _make_python, _bare_python, _numbers(32), _TRUSTED, _TRUSTED
    ),
    Case(
        "torch",
        "two layers, 32 to 64 to 1, exported",
        "torch",
        _make_torch,
        _bare_torch,
        _numbers(32, "input"),
        _TRUSTED,
        _TRUSTED,
    ),
    Case("tensorflow", "two layers, 32 to 64 to 1", "tensorflow", _make_tensorflow, _bare_tensorflow, _numbers(32)),
    Case(
        "transformers",
        "BERT of two layers of 64, 12 words",
        "transformers",
        _make_transformers,
        _bare_transformers,
        _texts,
    ),
)
