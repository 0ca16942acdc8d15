"""Exported and compiled programs of PyTorch, and weights beside their network."""

import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from services.core.declared import DeclaredSignature
from services.core.signature import TensorSpec
from services.core.torch_spec import TorchSettings
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.detect import detect
from services.runtime.backends.torch import Model

ROWS = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
ROWS_OF_FOUR = DeclaredSignature.model_validate({"inputs": {"x": {"datatype": "FP32", "shape": [-1, 4]}}})
NETWORK = """
import torch

def network():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
"""


class Loaded(NamedTuple):
    model: Model
    signature: Any

    def answer(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        return self.model.run(inputs)


def loaded(file: Path, *, trusted: bool = True, **options: Any) -> Loaded:
    model = Model()
    return Loaded(model, model.load(file, Options(trusted=trusted, **options)))


def refusal(file: Path, **options: Any) -> str:
    with pytest.raises(BadArtifactError) as refused:
        loaded(file, **options)
    return str(refused.value)


class Scores(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, scale: torch.Tensor, extra: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"scores": self.layer(x) * scale + extra["shift"], "best": self.layer(x).argmax(1)}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("exported") / "model.pt2"
    rows = torch.export.Dim("rows", min=1)
    example = (torch.ones(2, 4), torch.ones(2, 1), {"shift": torch.zeros(2, 3)})
    shapes = ({0: rows}, {0: rows}, {"shift": {0: rows}})
    torch.export.save(torch.export.export(Scores().eval(), example, dynamic_shapes=shapes), file)
    return file


def test_an_exported_program_tells_all_of_itself(exported: Path) -> None:
    program = loaded(exported)

    answer = program.answer(x=ROWS, scale=np.full((5, 1), 2, np.float32), extra_shift=np.ones((5, 3), np.float32))

    assert program.signature.inputs == (
        TensorSpec("x", "FP32", (-1, 4)),
        TensorSpec("scale", "FP32", (-1, 1)),
        TensorSpec("extra_shift", "FP32", (-1, 3)),
    )
    assert program.signature.outputs == (TensorSpec("scores", "FP32", (-1, 3)), TensorSpec("best", "INT64", (-1,)))
    assert program.signature.batches
    with torch.inference_mode():
        own = Scores()(torch.from_numpy(ROWS.copy()), torch.full((5, 1), 2.0), {"shift": torch.ones(5, 3)})
    np.testing.assert_allclose(answer["scores"], own["scores"].numpy(), rtol=1e-5)
    assert np.array_equal(answer["best"], own["best"].numpy())


def test_an_exported_program_runs_only_if_it_is_trusted(exported: Path) -> None:
    assert refusal(exported, trusted=False) == (
        "model.pt2 is an exported program, which can run code when loaded: set trusted in the model's spec if you know"
        " where it comes from"
    )


def test_its_inputs_can_have_other_names(exported: Path) -> None:
    inputs = {name: {"datatype": "FP32", "shape": [-1, -1]} for name in ("INPUT__0", "INPUT__1", "INPUT__2")}

    signature = loaded(exported, declared=DeclaredSignature.model_validate({"inputs": inputs})).signature

    assert [spec.name for spec in signature.inputs] == list(inputs)
    assert signature.inputs[0] == TensorSpec("INPUT__0", "FP32", (-1, 4))


def test_a_program_exported_for_one_size_takes_that(tmp_path: Path) -> None:
    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor, times: int) -> list[torch.Tensor]:
            return [x * times]

    file = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Doubled(), (torch.ones(3, 2, dtype=torch.int32), 2)), file)
    program = loaded(file)

    answer = program.answer(x=np.ones((3, 2), np.int32))

    assert program.signature.inputs == (TensorSpec("x", "INT32", (3, 2)),)
    assert program.signature.outputs == (TensorSpec("output_0", "INT32", (3, 2)),)
    assert not program.signature.batches
    assert np.array_equal(answer["output_0"], np.full((3, 2), 2))


@pytest.mark.parametrize("cut", [True, False], ids=["cut off", "overwritten"])
def test_a_damaged_program_is_refused(exported: Path, tmp_path: Path, cut: bool) -> None:  # noqa: FBT001
    raw = exported.read_bytes()
    file = tmp_path / "model.pt2"
    file.write_bytes(raw[: len(raw) // 2] if cut else raw.replace(b'"graph_module"', b'"groph_module"'))

    said = refusal(file)

    expected = "a whole zip archive, found" if cut else "an exported program; torch says: "
    assert said.startswith(f"model.pt2: expected {expected}")
    assert str(tmp_path) not in said


def test_an_archive_of_something_else_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("notes.txt", "nothing of torch")

    assert refusal(file) == (
        "model.pt: expected TorchScript, an exported program or an AOTInductor package, found a zip archive with"
        " notes.txt"
    )


# Weights beside a network.


@pytest.fixture
def weights(tmp_path: Path) -> dict[str, torch.Tensor]:
    (tmp_path / "network.py").write_text(NETWORK)
    torch.manual_seed(3)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return layers.state_dict()


def expected(weights: dict[str, torch.Tensor]) -> np.ndarray:
    hidden = np.maximum(ROWS @ weights["0.weight"].numpy().T + weights["0.bias"].numpy(), 0)
    return hidden @ weights["2.weight"].numpy().T + weights["2.bias"].numpy()


@pytest.mark.parametrize("form", ["state dict", "checkpoint", "old", "safetensors"])
def test_weights_are_served_with_the_network_beside_them(
    tmp_path: Path, weights: dict[str, torch.Tensor], form: str
) -> None:
    file = tmp_path / ("model.safetensors" if form == "safetensors" else "model.pt")
    match form:
        case "state dict":
            torch.save(weights, file)
        case "checkpoint":
            torch.save({"epoch": 3, "model_state_dict": weights}, file)
        case "old":
            torch.save(weights, file, _use_new_zipfile_serialization=False)
        case _:
            file.write_bytes(safetensors(weights))
    found = detect(tmp_path)
    program = loaded(found.file, declared=ROWS_OF_FOUR)

    assert (found.framework, found.file) == ("torch", file)
    assert program.signature.inputs == (TensorSpec("x", "FP32", (-1, 4)),)  # forward calls it otherwise
    assert program.signature.outputs == (TensorSpec("output", "FP32", (-1, 2)),)
    np.testing.assert_allclose(program.answer(x=ROWS)["output"], expected(weights), rtol=1e-5, atol=1e-6)


def safetensors(weights: dict[str, torch.Tensor]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, tensor in weights.items():
        data = tensor.numpy().tobytes()
        offsets = [len(body), len(body) + len(data)]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": offsets}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_the_code_of_a_network_runs_only_if_it_is_trusted(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    torch.save(weights, tmp_path / "model.pt")

    assert refusal(tmp_path / "model.pt", trusted=False) == (
        "network.py is code and would run when loaded: set trusted in the model's spec if you know where it comes from"
    )


def test_weights_alone_are_refused_with_what_to_save(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "model.pt")

    said = refusal(tmp_path / "model.pt")

    assert said.startswith(
        "model.pt has weights and no network: save the model with torch.jit.script(model).save(FILE)"
    )


def test_of_a_pickled_module_nothing_runs_even_if_it_is_trusted(
    tmp_path: Path, weights: dict[str, torch.Tensor]
) -> None:
    torch.save(torch.nn.Linear(4, 2), tmp_path / "model.pt")

    said = refusal(tmp_path / "model.pt")

    assert said.startswith("model.pt: expected weights (a state dict), found a pickle with code of its own")


def test_weights_of_another_network_are_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    torch.save({"0.weight": weights["0.weight"]}, tmp_path / "model.pt")

    said = refusal(tmp_path / "model.pt")

    assert said.startswith("model.pt does not fit the network of network.py: Error(s) in loading state_dict")


def test_a_cut_safetensors_file_is_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(safetensors(weights)[:-10])

    said = refusal(file, declared=ROWS_OF_FOUR)

    assert said.startswith(f"model.safetensors: expected a whole safetensors file, found {file.stat().st_size} bytes")


def test_a_network_that_is_none_is_refused(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    torch.save(weights, tmp_path / "model.pt")
    (tmp_path / "network.py").write_text("network = 3\n")

    assert refusal(tmp_path / "model.pt") == (
        "network.py: expected a function network() that gives a torch.nn.Module, found NoneType"
    )


# Compiled ones.

COMPILE = """
import sys
import torch

class Weighted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.arange(8.0).reshape(4, 2))

    def forward(self, x):
        return {"y": torch.mm(x, self.weights)}

program = torch.export.export(Weighted(), (torch.ones(2, 4),), dynamic_shapes={"x": {0: torch.export.Dim("rows")}})
cheap = {"aot_inductor.compile_wrapper_opt_level": "O0", "cpp_cache_precompile_headers": False}
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[1], inductor_configs=cheap)
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    folder = tmp_path_factory.mktemp("compiled")
    settings = {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    file = folder / "model.pt2"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPILE, str(file)], env=os.environ | settings, check=True, timeout=500
    )
    return file


@pytest.mark.slow
@pytest.mark.timeout(600)  # of a C++ compiler
def test_a_compiled_package_is_told_apart_and_answers(compiled: Path) -> None:
    found = detect(compiled.parent)
    program = loaded(found.file)

    answer = program.answer(input_0=ROWS)

    assert found.framework == "torch"
    assert program.signature.inputs == (TensorSpec("input_0", "FP32", (-1, 4)),)
    assert program.signature.outputs == (TensorSpec("y", "FP32", (-1, 2)),)
    assert (program.signature.batches, program.signature.platform) == (True, "pytorch_aoti")
    np.testing.assert_allclose(answer["y"], ROWS @ np.arange(8, dtype=np.float32).reshape(4, 2), rtol=1e-5, atol=1e-6)
    assert [spec.name for spec in loaded(found.file, declared=ROWS_OF_FOUR).signature.inputs] == ["x"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_compiled_package_is_code_and_is_not_compiled_again(compiled: Path) -> None:
    assert "which can run code when loaded: set trusted" in refusal(compiled, trusted=False)
    assert "this is a package that AOTInductor compiled" in refusal(compiled, torch=TorchSettings(compile="default"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_network_is_compiled_where_the_spec_says_so(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    torch.save(weights, tmp_path / "model.pt")
    program = loaded(tmp_path / "model.pt", declared=ROWS_OF_FOUR, torch=TorchSettings(compile="default"))

    answer = program.answer(x=ROWS)["output"]

    assert type(program.model._call).__name__ == "OptimizedModule"
    np.testing.assert_allclose(answer, expected(weights), rtol=1e-5, atol=1e-6)
