"""Models of PyTorch, served by workers: answers equal torch's own in this process."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from services.core import arrays
from tests.support.runtime_pod import FAILED, Batcher, Pod, output
from turnout.v1.tensor_pb2 import Tensor

pytestmark = pytest.mark.timeout(300)  # workers that import torch on a busy machine
ROWS = np.random.default_rng(5).normal(size=(6, 4)).astype(np.float32)
TRACED, EXPORTED, PICKLED = "123"


class Scores(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.layers(x)
        return {"scores": scores.softmax(1), "best": scores.argmax(1)}


async def test_one_network_in_every_form_answers_alike_and_a_pickle_is_refused(pod: Pod) -> None:
    module = Scores().eval()
    for version in (TRACED, EXPORTED, PICKLED):
        (pod.models / "scores" / version).mkdir(parents=True)
    _trace(module, pod.models / "scores" / TRACED / "model.pt")
    rows = {0: torch.export.Dim("rows", min=1)}
    program = torch.export.export(module, (torch.ones(2, 4),), dynamic_shapes={"x": rows})
    torch.export.save(program, pod.models / "scores" / EXPORTED / "model.pt2")
    torch.save(module.state_dict(), pod.models / "scores" / PICKLED / "model.pt")
    trusted = {version: {"trusted": True} for version in (EXPORTED, PICKLED)}
    await pod.put("models/scores", {"version_policy": {"all": True}, "versions": trusted})
    with torch.inference_mode():
        own = module(torch.from_numpy(ROWS))
    async with pod.running():
        for version in (TRACED, EXPORTED):
            instance = await pod.instance("scores", version)
            assert instance.signature.batches, instance.reason
            async with Batcher(instance) as batcher:
                together = await (await batcher.send_array(ROWS))
                alone = await (await batcher.send_array(ROWS[2:3]))
                faulty = await (await batcher.send_array(ROWS[:, :3]))
                again = await (await batcher.send_array(ROWS))
            np.testing.assert_allclose(output(together, "scores"), own["scores"], rtol=1e-5)
            assert np.array_equal(output(together, "best"), own["best"])
            np.testing.assert_allclose(output(alone, "scores"), own["scores"][2:3], rtol=1e-5)
            assert faulty.code, "a row of three numbers for four weights"
            assert output(again, "scores").tobytes() == output(together, "scores").tobytes()
        refused = await pod.instance("scores", PICKLED, FAILED)

    assert refused.reason.startswith("model.pt has weights and no network: save the model with torch.jit.script")


def _trace(module: torch.nn.Module, file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated, and that dicts are not checked
        torch.jit.trace(module, torch.ones(3, 4), strict=False).save(file)


async def test_silero_hears_the_same_in_a_worker_through_every_sequence(pod: Pod) -> None:
    """It keeps state of its own from chunk to chunk, and its rate is a scalar."""
    spec = find_spec("silero_vad")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent / "data" / "silero_vad.jit"
    folder = pod.models / "silero" / "1"
    folder.mkdir(parents=True)
    (folder / "model.jit").write_bytes(file.read_bytes())
    signature = {
        "inputs": {"x": {"datatype": "FP32", "shape": [-1, -1]}},
        "outputs": {"speech": {"datatype": "FP32", "shape": [-1, 1]}},
    }
    await pod.put("models/silero", {"signature": signature})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = torch.jit.load(file).eval()
    random = np.random.default_rng(6)
    async with pod.running():
        instance = await pod.instance("silero", "1")
        async with Batcher(instance) as batcher:
            for rate, samples, rows in ((16_000, 512, 1), (8_000, 256, 2)):
                own.reset_states()
                for step in range(4):
                    chunk = random.normal(scale=0.3, size=(rows, samples)).astype(np.float32)
                    with torch.inference_mode():
                        expected = own(torch.from_numpy(chunk), rate).numpy()
                    answer = output(await _ask(batcher, chunk, rate, starts=step == 0), "speech")

                    np.testing.assert_allclose(answer, expected, rtol=1e-5)

    assert not instance.signature.batches
    assert [(each.name, each.datatype, list(each.shape)) for each in instance.signature.inputs] == [
        ("x", "FP32", [-1, -1]),
        ("sr", "INT64", []),
        ("sequence_start", "BOOL", [1]),
    ]


async def _ask(batcher: Batcher, chunk: np.ndarray, rate: int, *, starts: bool) -> Any:
    given = {"x": chunk, "sr": np.array(rate), "sequence_start": np.array([starts])}
    inputs = [
        Tensor(name=name, datatype=arrays.encode(array)[0], shape=array.shape, data=arrays.encode(array)[1])
        for name, array in given.items()
    ]
    return await (await batcher.send_array(chunk, inputs=inputs, rows=1))
