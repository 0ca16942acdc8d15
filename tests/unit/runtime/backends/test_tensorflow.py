"""SavedModels answer as in TensorFlow itself, whatever saved them and whatever goes in."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from services.core.arrays import NUMPY_DTYPE
from services.core.declared import DeclaredSignature
from services.core.protowire import bytes_field
from services.core.signature import Signature, TensorSpec
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.tensorflow import Model
from services.runtime.examples import Examples, of_backend
from services.runtime.warm_up import checked

v1 = tf.compat.v1
ROWS = np.random.default_rng(5).standard_normal((7, 4)).astype(np.float32)
NUMBERS = {name: tf.dtypes.as_dtype(dtype) for name, dtype in NUMPY_DTYPE.items()}


class Scorer(tf.Module):
    """Weights, a table of text, and a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2) / 7)
        words = tf.lookup.KeyValueTensorInitializer([b"Bonn", b"K\xc3\xb6ln"], [1, 2])
        self.table = tf.lookup.StaticHashTable(words, -1)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def score(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.nn.softmax(x @ self.weights), "x": x}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 4], tf.float32, "x"),
            tf.TensorSpec([None], tf.string, "city"),
            tf.TensorSpec([], tf.int64, "shift"),
        ]
    )
    def mixed(self, x: tf.Tensor, city: tf.Tensor, shift: tf.Tensor) -> dict[str, tf.Tensor]:
        code = self.table.lookup(city)
        return {"code": code, "city": city + b"\0", "y": x @ self.weights + tf.cast(shift, tf.float32), "shift": -shift}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.bfloat16, "b")])
    def halves(self, b: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"twice": b * 2, "same": b}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def lengths(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"length": tf.strings.length(text)}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, "u")])
    def anything(self, u: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"v": u + 1}

    @tf.function(input_signature=[])
    def constants(self) -> dict[str, tf.Tensor]:
        return {"name": tf.constant(b"a\0b"), "primes": tf.constant([2, 3, 5])}


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    return Scorer()


def save(folder: Path, module: tf.Module, **signatures: object) -> Path:
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder / "saved_model.pb"


def load(artifact: Path, **options: object) -> tuple[Model, Signature]:
    model = Model()
    return model, model.load(artifact, Options(**options))  # type: ignore[arg-type]


def expected(artifact: Path, name: str = "serving_default", **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """What TensorFlow's own loader gives."""
    answers = tf.saved_model.load(str(artifact.parent)).signatures[name](
        **{key: tf.convert_to_tensor(value) for key, value in inputs.items()}
    )
    return {key: value.numpy() for key, value in answers.items()}


def test_answers_equal_the_frameworks_own_together_and_alone(tmp_path: Path, scorer: Scorer) -> None:
    artifact = save(tmp_path, scorer, serving_default=scorer.score)
    model, signature = load(artifact)
    own = expected(artifact, x=ROWS)

    assert signature == Signature(
        (TensorSpec("x", "FP32", (-1, 4)),),
        (TensorSpec("x", "FP32", (-1, 4)), TensorSpec("y", "FP32", (-1, 2))),
        batches=True,
        platform="tensorflow_savedmodel",
        name="serving_default",
    )
    assert checked(model.run, signature).signature == signature
    together = model.run({"x": ROWS})
    np.testing.assert_allclose(together["y"], own["y"], rtol=1e-5)
    assert np.array_equal(together["x"], ROWS)
    for row in range(len(ROWS)):
        np.testing.assert_allclose(model.run({"x": ROWS[row : row + 1]})["y"], own["y"][row : row + 1], rtol=1e-5)
    assert model.run({"x": ROWS[:0]})["y"].shape == (0, 2)
    model.unload()


def test_text_numbers_and_a_scalar_go_in_together(tmp_path: Path, scorer: Scorer) -> None:
    artifact = save(tmp_path, scorer, serving_default=scorer.mixed)
    model, signature = load(artifact)
    cities = np.array([b"K\xc3\xb6ln", b"", b"\xff\0", b"Bonn", b"x", b"y", b"z"], dtype=object)
    inputs = {"x": ROWS, "city": cities, "shift": np.array(3)}

    answers = model.run(inputs)

    own = expected(artifact, **inputs)
    assert not signature.batches
    assert [str(spec) for spec in signature.inputs] == ["city BYTES[-1]", "shift INT64[]", "x FP32[-1, 4]"]
    assert [str(spec) for spec in signature.outputs] == [
        "city BYTES[-1]", "code INT32[-1]", "shift INT64[]", "y FP32[-1, 2]",
    ]  # fmt: skip
    assert answers["city"].tolist() == own["city"].tolist() == [city + b"\0" for city in cities]
    assert answers["code"].tolist() == [2, -1, -1, 1, -1, -1, -1]
    assert (answers["shift"].shape, answers["shift"].dtype, answers["shift"]) == ((), np.int64, -3)
    np.testing.assert_allclose(answers["y"], own["y"], rtol=1e-5)


def test_every_datatype_of_numbers_comes_through_bit_by_bit(tmp_path: Path) -> None:
    class Echo(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2], NUMBERS[name], name) for name in NUMBERS])
        def echo(self, *tensors: tf.Tensor) -> dict[str, tf.Tensor]:
            return {f"{name}_": tf.reverse(tensor, [1]) for name, tensor in zip(NUMBERS, tensors, strict=True)}

    module = Echo()
    model, signature = load(save(tmp_path, module, serving_default=module.echo))
    ends = {
        name: np.array([[False, True]])
        if dtype.kind == "b"
        else np.array([[np.finfo(dtype).max, -np.inf]], dtype)
        if dtype.kind == "f"
        else np.array([[np.iinfo(dtype).max, np.iinfo(dtype).min]], dtype)
        for name, dtype in NUMPY_DTYPE.items()
    }

    answers = model.run(ends)

    assert {spec.name: spec.datatype for spec in signature.inputs} == {name: name for name in NUMBERS}
    assert {spec.datatype for spec in signature.outputs} == set(NUMBERS)
    for name, array in ends.items():
        assert answers[f"{name}_"].dtype == array.dtype
        assert answers[f"{name}_"].tobytes() == array[:, ::-1].tobytes()


def test_bf16_goes_in_and_comes_out_as_words(tmp_path: Path, scorer: Scorer) -> None:
    model, signature = load(save(tmp_path, scorer, serving_default=scorer.halves))
    words = np.array([[0x3F80, 0xC000, 0x7F80], [0x0100, 0x8000, 0x4049]], "<u2")  # 1, -2, inf; tiny, -0, 3.14

    answers = model.run({"b": words})

    assert [spec.datatype for spec in signature.inputs + signature.outputs] == ["BF16"] * 3
    assert np.array_equal(answers["same"], words)
    assert answers["twice"].dtype == np.uint16
    assert answers["twice"].tolist() == [[0x4000, 0xC080, 0x7F80], [0x0180, 0x8000, 0x40C9]]


def test_an_input_of_no_declared_shape_is_refused_or_declared(tmp_path: Path, scorer: Scorer) -> None:
    artifact = save(tmp_path, scorer, serving_default=scorer.anything)
    with pytest.raises(BadArtifactError, match=r"^saved_model\.pb: input 'u' has no declared shape: declare it under"):
        load(artifact)

    declared = DeclaredSignature.model_validate({"inputs": {"u": {"datatype": "FP32", "shape": (-1, 2)}}})
    model, signature = load(artifact, declared=declared)

    assert [str(spec) for spec in signature.inputs + signature.outputs] == ["u FP32[-1, 2]", "v FP32[-1, 2]"]
    assert signature.batches
    assert model.run({"u": ROWS[:, :2]})["v"].tolist() == (ROWS[:, :2] + 1).tolist()


def test_a_signature_without_inputs_gives_constants(tmp_path: Path, scorer: Scorer) -> None:
    model, signature = load(save(tmp_path, scorer, constants=scorer.constants))

    answers = model.run({})

    assert [str(spec) for spec in signature.outputs] == ["name BYTES[]", "primes INT32[3]"]
    assert (signature.inputs, signature.batches, signature.name) == ((), False, "constants")
    assert (answers["name"].shape, answers["name"].item()) == ((), b"a\0b")
    assert answers["primes"].tolist() == [2, 3, 5]


def test_every_signature_that_can_be_served_is(tmp_path: Path, scorer: Scorer) -> None:
    artifact = save(
        tmp_path,
        scorer,
        serving_default=scorer.score,
        halves=scorer.halves,
        any=scorer.anything,
        fixed=scorer.constants,
    )
    model, signature = load(artifact)
    _, other = load(artifact, signature_name="fixed")

    assert signature.name == "serving_default"
    assert [(each.name, each.batches) for each in signature.more] == [
        ("fixed", False),
        ("halves", True),
    ]  # any: no rank
    assert set(model.runs()) == {"fixed", "halves"}
    assert model.runs()["fixed"]({})["primes"].tolist() == [2, 3, 5]
    assert (other.name, [each.name for each in other.more]) == ("fixed", ["halves", "serving_default"])
    with pytest.raises(
        BadArtifactError, match=r"signature 'none' is asked for; it has any, fixed, halves, serving_def"
    ):
        load(artifact, signature_name="none")


def log_of(kind: int, *inputs: bytes, name: str = "") -> bytes:
    """A record of TensorFlow Serving: PredictionLog -> *Log.request -> *Request."""
    spec = bytes_field(1, b"model") + bytes_field(3, name.encode())
    return bytes_field(kind, bytes_field(1, bytes_field(1, spec) + b"".join(bytes_field(2, each) for each in inputs)))


def tensor(name: str, array: object) -> bytes:
    return bytes_field(1, name.encode()) + bytes_field(2, tf.make_tensor_proto(array).SerializeToString())


def test_requests_for_warm_up_are_those_that_came_with_the_model(tmp_path: Path, scorer: Scorer) -> None:
    artifact = save(
        tmp_path, scorer, serving_default=scorer.score, halves=scorer.halves, mixed=scorer.mixed, texts=scorer.lengths
    )
    (tmp_path / "assets.extra").mkdir()
    half, city = tf.constant([[1, 2, 3]], tf.bfloat16).numpy(), [b"Ulm", b"\0"]
    logs = [
        log_of(6, tensor("x", ROWS)),
        log_of(6, tensor("b", half), name="halves"),
        log_of(6, tensor("x", ROWS[:1]), name="serving_default"),
        log_of(6, tensor("x", ROWS[:2]), tensor("city", city), tensor("shift", np.int64(3)), name="mixed"),
        log_of(2, bytes_field(1, bytes_field(1, b"first") + bytes_field(1, b"second")), name="texts"),
        log_of(5, name="mixed"),
    ]
    with tf.io.TFRecordWriter(str(tmp_path / "assets.extra" / "tf_serving_warmup_requests")) as writer:
        for log in logs:
            writer.write(log)
    model, signature = load(artifact)

    usual = of_backend(model, signature, 10)
    others = {each.name: of_backend(model, each, 10, each.name) for each in signature.more}

    assert [example["x"].tolist() for example in usual.fitting] == [ROWS.tolist(), ROWS[:1].tolist()]
    assert others["halves"].fitting[0]["b"].tolist() == [[0x3F80, 0x4000, 0x4040]]
    assert others["mixed"].fitting[0]["city"].tolist() == city
    assert others["mixed"].reason.endswith("expected requests to PREDICT, CLASSIFY or REGRESS, found SESSION_RUN")
    assert others["texts"].fitting[0]["text"].tolist() == [b"first", b"second"]
    assert model.runs()["texts"](others["texts"].fitting[0])["length"].tolist() == [5, 6]


def test_a_broken_file_of_requests_is_no_reason_not_to_serve(tmp_path: Path, scorer: Scorer) -> None:
    model, signature = load(save(tmp_path, scorer, serving_default=scorer.score))
    assert of_backend(model, signature, 10) == Examples()

    (tmp_path / "assets.extra").mkdir()
    (tmp_path / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"no records at all")

    assert of_backend(model, signature, 10).left_out == 1


def test_a_gpu_that_is_not_there_is_said(tmp_path: Path, scorer: Scorer) -> None:
    artifact = save(tmp_path, scorer, serving_default=scorer.score)

    assert load(artifact, device="auto")[0].run({"x": ROWS}).keys() == {"x", "y"}
    with pytest.raises(
        BadArtifactError, match=r"^saved_model\.pb: a GPU is asked for, and the installed tensorflow sees"
    ):
        load(artifact, device="cuda")


def save_v1(folder: Path, names: tuple[str, ...] = ("predict",), tags: tuple[str, ...] = ("serve",)) -> Path:
    """A graph of TensorFlow 1: a placeholder, a variable, no Python objects."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        weights = v1.get_variable("w", initializer=tf.constant([[1.0], [2.0], [3.0], [4.0]]), use_resource=False)
        y = tf.matmul(x, weights, name="y")
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(str(folder))
        signature = v1.saved_model.predict_signature_def({"rows": x}, {"sums": y})
        builder.add_meta_graph_and_variables(session, list(tags), dict.fromkeys(names, signature))
        builder.save()
    return folder / "saved_model.pb"


def test_a_graph_of_tensorflow_1_is_served_by_its_only_signature(tmp_path: Path) -> None:
    model, signature = load(save_v1(tmp_path / "m"))

    assert [str(spec) for spec in signature.inputs + signature.outputs] == ["rows FP32[-1, 4]", "sums FP32[-1, 1]"]
    assert signature.batches
    np.testing.assert_allclose(model.run({"rows": ROWS})["sums"][:, 0], ROWS @ [1, 2, 3, 4], rtol=1e-5)


def test_what_is_no_whole_saved_model_is_refused_with_what_it_is(tmp_path: Path, scorer: Scorer) -> None:
    two = save_v1(tmp_path / "two", names=("classify", "regress"))
    trains = save_v1(tmp_path / "trains", tags=("train",))
    bare = save(tmp_path / "bare", scorer)
    lost = save(tmp_path / "lost", scorer, serving_default=scorer.score)
    (lost.parent / "variables" / "variables.data-00000-of-00001").unlink()
    foreign = tmp_path / "foreign" / "saved_model.pb"
    foreign.parent.mkdir()
    foreign.write_bytes(b"\xff\xff\xff")
    sparse = _changed(tmp_path / "sparse", scorer, lambda info: info.coo_sparse.SetInParent())
    complex_ = _changed(
        tmp_path / "complex", scorer, lambda info: setattr(info, "dtype", tf.complex64.as_datatype_enum)
    )
    absent = _changed(tmp_path / "absent", scorer, lambda info: setattr(info, "name", "none:0"))

    for artifact, fault in {
        two: r"it has no signature 'serving_default' but classify, regress: say signature_name",
        trains: r"expected one graph tagged 'serve', found train",
        bare: r"it has no signature: save it with signatures=",
        lost: r"expected a SavedModel with its variables beside it; tensorflow says: .*variables",
        foreign: r"expected a SavedModel \(protobuf\), found ",
        sparse: r"input 'x' is a coo_sparse of several tensors; expected a dense one",
        complex_: r"input 'x' is of complex64; expected one of BOOL, ",
        absent: r"a signature names what its graph has not; tensorflow says: .*none:0",
    }.items():
        with pytest.raises(BadArtifactError, match=f"^saved_model\\.pb: {fault}") as caught:
            load(artifact)
        assert str(tmp_path) not in str(caught.value)


def _changed(folder: Path, scorer: Scorer, change: object) -> Path:
    """A SavedModel whose input is described otherwise."""
    artifact = save(folder, scorer, serving_default=scorer.score)
    saved = saved_model_pb2.SavedModel.FromString(artifact.read_bytes())
    change(saved.meta_graphs[0].signature_def["serving_default"].inputs["x"])  # type: ignore[operator]
    artifact.write_bytes(saved.SerializeToString())
    return artifact
