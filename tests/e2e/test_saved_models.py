"""SavedModels through a whole mesh: several signatures of one, and a network that others published in two formats."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from shutil import copy, copytree
from typing import Any

import grpc.aio
import numpy as np
import onnxruntime
import pytest
import pytest_asyncio
import tensorflow as tf

from inference import grpc_service_pb2 as pb
from inference import grpc_service_pb2_grpc as pb_grpc
from services.core.arrays import decode, encode
from tests.support.channels import own_channel
from tests.support.mesh import Mesh
from tests.support.mesh_probes import QUICK, errors, model_ready, put_model

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

v1 = tf.compat.v1
LOADED_S = 180.0  # TensorFlow takes seconds of processor time to import
NAMES = ("runtime-0", "batcher-0", "router")
NOTES = Path(find_spec("basic_pitch").submodule_search_locations[0]) / "saved_models/icassp_2022"  # type: ignore[union-attr,index]
ROWS = np.random.default_rng(7).standard_normal((3, 4)).astype(np.float32)
SOUND = np.random.default_rng(8).uniform(-0.5, 0.5, (2, 43844, 1)).astype(np.float32)  # two windows of two seconds
OUTPUTS = {"contour": 0, "note": 1, "onset": 2}
Arrays = Mapping[str, np.ndarray]


class Words(tf.Module):
    """Scores rows, and counts letters of words, which has inputs of other datatypes."""

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def score(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"sum": tf.reduce_sum(x, axis=1)}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def largest(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"place": tf.argmax(x, axis=1)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "word"), tf.TensorSpec([], tf.int32, "least")])
    def letters(self, word: tf.Tensor, least: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"letters": tf.maximum(tf.strings.length(word, unit="UTF8_CHAR"), least)}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    async with Mesh(tmp_path_factory.mktemp("saved"), only=NAMES, settings=QUICK) as mesh:
        words = Words()
        signatures = {"serving_default": words.score, "largest": words.largest, "letters": words.letters}
        tf.saved_model.save(words, str(mesh.repository / "words/1"), signatures=signatures)
        copytree(NOTES / "nmp", mesh.repository / "notes/1/model.savedmodel")
        (mesh.repository / "notes/2").mkdir()
        copy(NOTES / "nmp.onnx", mesh.repository / "notes/2/model.onnx")
        await put_model(mesh, "words", 1, spec={"default_deadline_ms": 60_000})
        await put_model(mesh, "notes", 1, 2, spec={"default_deadline_ms": 60_000})
        for model, version in (("words", "1"), ("notes", "1"), ("notes", "2")):
            await model_ready(mesh, model, version, LOADED_S)
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def stub(mesh: Mesh) -> AsyncIterator[Any]:
    async with own_channel(await mesh.listening("router", "grpc")) as channel:
        yield pb_grpc.GRPCInferenceServiceStub(channel)


async def ask(stub: Any, model: str, inputs: Arrays, version: str = "", name: str = "") -> dict[str, np.ndarray]:
    request = pb.ModelInferRequest(model_name=model, model_version=version)
    for key, array in inputs.items():
        datatype, data = encode(array)
        request.inputs.add(name=key, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(data)
    if name:
        request.parameters["signature_name"].string_param = name
    response = await stub.ModelInfer(request, timeout=60)
    return {
        output.name: decode(output.datatype, output.shape, data)
        for output, data in zip(response.outputs, response.raw_output_contents, strict=True)
    }


async def test_a_request_says_which_signature_answers(mesh: Mesh, stub: Any) -> None:
    words = np.array([b"Haus", "Tür".encode(), b""], dtype=object)

    usual = await ask(stub, "words", {"x": ROWS})
    named = await ask(stub, "words", {"x": ROWS}, name="serving_default")
    largest = await ask(stub, "words", {"x": ROWS}, name="largest")
    letters = await ask(stub, "words", {"word": words, "least": np.array(1, np.int32)}, name="letters")

    np.testing.assert_allclose(usual["sum"], ROWS.sum(axis=1), rtol=1e-5)
    assert named["sum"].tobytes() == usual["sum"].tobytes()
    assert largest["place"].tolist() == ROWS.argmax(axis=1).tolist()
    assert letters["letters"].tolist() == [4, 3, 1]
    with pytest.raises(
        grpc.aio.AioRpcError, match="'smallest' is asked for; there is: serving_default, largest, letters"
    ):
        await ask(stub, "words", {"x": ROWS}, name="smallest")
    assert errors(mesh, *NAMES) == []


async def test_signatures_and_models_at_once_each_get_their_own_answers(stub: Any) -> None:
    """Rows of equal shape for two signatures, beside another network: none gets what is another's."""
    rows = np.random.default_rng(9).standard_normal((40, 1, 4)).astype(np.float32)
    quiet = np.zeros_like(SOUND[:1])
    asked = [ask(stub, "words", {"x": each}, name=name) for each in rows for name in ("", "largest")]
    *answers, first, second = await asyncio.gather(
        *asked, ask(stub, "notes", {"input_2": SOUND[:1]}, "1"), ask(stub, "notes", {"input_2": quiet}, "1")
    )

    assert [answer["place"].tolist() for answer in answers[1::2]] == [each.argmax(axis=1).tolist() for each in rows]
    np.testing.assert_allclose([answer["sum"] for answer in answers[::2]], rows.sum(axis=2), rtol=1e-5, atol=1e-6)
    assert first["note"].max() > second["note"].max()


def own_answers() -> tuple[Arrays, Arrays]:
    """What TensorFlow and onnxruntime give in this process."""
    with tf.Graph().as_default(), v1.Session() as session:
        graph = v1.saved_model.load(session, ["serve"], str(NOTES / "nmp"))
        served = graph.signature_def["serving_default"]
        (x,) = served.inputs.values()
        fetches = {name: served.outputs[name].name for name in OUTPUTS}
        tensorflow = session.run(fetches, {x.name: SOUND})
    onnx = onnxruntime.InferenceSession(str(NOTES / "nmp.onnx"), providers=["CPUExecutionProvider"])
    names = [output.name for output in onnx.get_outputs()]
    answers = dict(zip(names, onnx.run(names, {onnx.get_inputs()[0].name: SOUND}), strict=True))
    return tensorflow, answers


async def test_a_published_network_answers_as_in_its_framework_in_either_format(stub: Any) -> None:
    tensorflow, onnx = own_answers()

    saved = await ask(stub, "notes", {"input_2": SOUND}, version="1")
    alone = [await ask(stub, "notes", {"input_2": SOUND[row : row + 1]}, version="1") for row in (0, 1)]
    metadata = await stub.ModelMetadata(pb.ModelMetadataRequest(name="notes", version="2"), timeout=60)
    converted = await ask(stub, "notes", {metadata.inputs[0].name: SOUND}, version="2")

    assert saved.keys() == OUTPUTS.keys()
    for name in OUTPUTS:
        np.testing.assert_allclose(saved[name], tensorflow[name], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            np.concatenate([each[name] for each in alone]), tensorflow[name], rtol=1e-5, atol=1e-6
        )
    for name, number in OUTPUTS.items():
        exported = f"StatefulPartitionedCall:{number}"  # the ONNX file has the graph's own names
        np.testing.assert_allclose(converted[exported], onnx[exported], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(converted[exported], saved[name], rtol=1e-4, atol=1e-5)
