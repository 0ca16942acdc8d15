"""ONNX models that others published, served by workers: answers equal onnxruntime's own, alone and in batches."""

import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from tests.support.lone_worker import LoneWorker, lone_worker
from tests.support.runtime_pod import FAILED, Pod

SEQUENCES = [{"input_name": "state", "output_name": "stateN"}]
START, END, FIRST = 2, 1, 1 << 2  # of an entry of Request.sequence_rows
Arrays = Mapping[str, np.ndarray]


def published(package: str, name: str) -> Path:
    """A model's file in an installed package, which is not imported."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations  # noqa: PT018
    return Path(spec.submodule_search_locations[0]) / name


def own(file: Path) -> onnxruntime.InferenceSession:
    """A session as a worker has it: of one thread."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])


def expect(session: onnxruntime.InferenceSession, inputs: Arrays) -> dict[str, np.ndarray]:
    names = [node.name for node in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def same(answer: Arrays, expected: Arrays) -> bool:
    """Whether names, datatypes, shapes and every bit are the same."""
    return answer.keys() == expected.keys() and all(
        (array.dtype, array.shape, array.tobytes()) == (other.dtype, other.shape, other.tobytes())
        for array, other in ((answer[name], expected[name]) for name in expected)
    )


async def check_batches(worker: LoneWorker, session: onnxruntime.InferenceSession, name: str, rows: np.ndarray) -> None:
    """Rows together and each alone are answered as onnxruntime does, and batching changes nothing but rounding."""
    assert worker.signature.batches, worker.reason
    together = await worker.answer({name: rows}, len(rows))
    alone = [await worker.answer({name: rows[row : row + 1]}) for row in range(len(rows))]

    assert same(together, expect(session, {name: rows}))
    for row, answer in enumerate(alone):
        assert same(answer, expect(session, {name: rows[row : row + 1]}))
        for output, array in answer.items():
            assert np.allclose(array[0], together[output][row], rtol=1e-4, atol=1e-6)


async def test_a_recurrent_network_answers_with_a_scalar_input_and_a_state_that_callers_or_the_mesh_keep() -> None:
    file = published("silero_vad", "data/silero_vad.onnx")
    session, rng = own(file), np.random.default_rng(7)
    sounds = rng.normal(scale=0.1, size=(3, 1, 576)).astype(np.float32)
    rate = np.array(16_000, np.int64)
    state = np.zeros((2, 1, 128), np.float32)
    expected = []
    for sound in sounds:
        expected.append(expect(session, {"input": sound, "state": state, "sr": rate}))
        state = expected[-1]["stateN"]
    async with lone_worker("onnx", file, states=SEQUENCES) as worker:
        kept = [
            await worker.answer({"input": sound, "sr": rate}, sequence_rows=[FIRST | flags])
            for sound, flags in zip(sounds, (START, 0, END), strict=True)
        ]
        refused = await worker.ask({"input": sounds[0], "sr": rate}, sequence_rows=[FIRST])
    async with lone_worker("onnx", file) as worker:
        state, given = np.zeros((2, 1, 128), np.float32), []
        for sound in sounds:
            given.append(await worker.answer({"input": sound, "state": state, "sr": rate}))
            state = given[-1]["stateN"]
        two = {"input": np.concatenate(sounds[:2]), "state": np.zeros((2, 2, 128), np.float32), "sr": rate}
        both = await worker.answer(two, 2)
        slow = {"input": sounds[0][:, :288], "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(8_000)}
        other_rate = await worker.answer(slow)
        specs = {spec.name: (spec.datatype, list(spec.shape)) for spec in worker.signature.inputs}

    assert specs == {"input": ("FP32", [-1, -1]), "state": ("FP32", [2, -1, 128]), "sr": ("INT64", [])}
    assert not worker.signature.batches
    assert all(same(answer, wanted) for answer, wanted in zip(given, expected, strict=True))
    assert all(same(answer, {"output": wanted["output"]}) for answer, wanted in zip(kept, expected, strict=True))
    assert (refused.code, "has no state here" in refused.message) == (3, True)
    assert same(both, expect(session, two))
    assert same(other_rate, expect(session, slow))


async def test_a_network_whose_rounding_depends_on_its_batch_is_not_batched_and_says_so() -> None:
    file = published("magika", "models/standard_v3_3/model.onnx")
    session = own(file)
    text = b"def hello():\n    return 'world'\n" * 16
    content = np.full((1, 2048), 256, np.int32)
    content[0, : len(text)] = list(text)
    noise = np.random.default_rng(3).integers(0, 256, (1, 2048)).astype(np.int32)
    async with lone_worker("onnx", file) as worker:
        answers = [await worker.answer({"bytes": rows}) for rows in (content, noise)]
        several = await worker.answer({"bytes": np.concatenate([content, noise])}, 2)

    assert not worker.signature.batches
    assert worker.reason == "output 'target_label' of two rows differs from the answers to each alone"
    assert all(same(a, expect(session, {"bytes": rows})) for a, rows in zip(answers, (content, noise), strict=True))
    assert same(several, expect(session, {"bytes": np.concatenate([content, noise])}))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("ch_PP-OCRv4_det_infer", [(2, 3, 64, 96), (2, 3, 96, 32)]),
        ("ch_ppocr_mobile_v2.0_cls_infer", [(3, 3, 48, 192), (2, 3, 32, 100)]),
        ("ch_PP-OCRv4_rec_infer", [(3, 3, 48, 64), (2, 3, 48, 100)]),
    ],
)
async def test_images_of_any_height_and_width_are_batched(name: str, shapes: list[tuple[int, ...]]) -> None:
    file = published("rapidocr_onnxruntime", f"models/{name}.onnx")
    session, rng = own(file), np.random.default_rng(5)
    async with lone_worker("onnx", file) as worker:
        for shape in shapes:
            await check_batches(worker, session, "x", rng.normal(size=shape).astype(np.float32))


async def test_a_network_of_several_outputs_transcribes_sound() -> None:
    file = published("basic_pitch", "saved_models/icassp_2022/nmp.onnx")
    session = own(file)
    time_s = np.arange(43_844, dtype=np.float32) / 22_050
    tones = np.stack([np.sin(2 * np.pi * pitch * time_s) for pitch in (440, 261.6)])[:, :, None].astype(np.float32)
    async with lone_worker("onnx", file) as worker:
        await check_batches(worker, session, "serving_default_input_2:0", tones)
        asked = await worker.answer({"serving_default_input_2:0": tones[:1]}, outputs=["StatefulPartitionedCall:1"])

    notes = asked["StatefulPartitionedCall:1"]
    assert asked.keys() == {"StatefulPartitionedCall:1"}
    assert int(notes[0].mean(axis=0).argmax()) == 69 - 21  # A4 among a piano's keys


async def test_a_runtime_keeps_the_optimised_graph_and_refuses_a_provider_that_is_not_there(pod: Pod) -> None:
    for version in "12":
        (pod.models / "text" / version).mkdir(parents=True)
        file = published("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx")
        shutil.copy(file, pod.models / "text" / version / "model.onnx")
    await pod.put(
        "models/text",
        {"version_policy": {"all": True}, "versions": {"2": {"onnx": {"providers": ["openvino", "cpu"]}}}},
    )
    async with pod.running():
        ready = await pod.instance("text", "1")
        failed = await pod.instance("text", "2", FAILED)
        (kept,) = pod.data.glob(f"artifacts/*/{ready.digest}.kept/*")

    assert kept.name.startswith("optimised-")
    assert failed.reason.startswith("model.onnx: provider openvino is asked for; the installed onnxruntime has ")
