import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from loadtest import torch_gpu
from services.core.declared import DeclaredSignature
from services.core.signature import TensorSpec
from services.core.torch_spec import TorchSettings
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.torch import Model
from services.runtime.warm_up import checked

ROWS = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
Tensors = Mapping[str, tuple[str, list[int]]]
FLOAT_ROWS: Tensors = {"x": ("FP32", [-1, 4])}


def declared(inputs: Tensors, outputs: Tensors | None = None) -> DeclaredSignature:
    return DeclaredSignature.model_validate(
        {
            role: {name: {"datatype": datatype, "shape": shape} for name, (datatype, shape) in (given or {}).items()}
            for role, given in (("inputs", inputs), ("outputs", outputs))
        }
    )


def saved(folder: Path, module: torch.nn.Module, *example: torch.Tensor) -> Path:
    """TorchScript: traced where there is an example, else scripted."""
    file = folder / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        made = torch.jit.trace(module.eval(), example) if example else torch.jit.script(module.eval())
        made.save(file)
    return file


def loaded(file: Path, inputs: Tensors | None = FLOAT_ROWS, given: Tensors | None = None, **options: Any) -> Any:
    """The model and its signature; `given` are the outputs that are declared."""
    model = Model()
    signature = model.load(file, Options(declared=declared(inputs, given) if inputs is not None else None, **options))
    return model, signature


def read_only(array: np.ndarray) -> np.ndarray:
    """As batches come: over bytes that nobody may write to."""
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def refusal(file: Path, *arguments: Any, **options: Any) -> str:
    with pytest.raises(BadArtifactError) as refused:
        loaded(file, *arguments, **options)
    return str(refused.value)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Pair(NamedTuple):
    total: torch.Tensor
    twice: torch.Tensor


class GivesTuple(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum(1), x * 2


class GivesList(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sum(1), x * 2]


class GivesDict(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"total": x.sum(1), "twice": x * 2}


class GivesNamedTuple(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Pair:
        return Pair(x.sum(1), x * 2)


def test_answers_are_those_of_the_module_itself_together_and_alone(tmp_path: Path) -> None:
    module = Layers().eval()
    model, signature = loaded(saved(tmp_path, module))

    answer = model.run({"x": read_only(ROWS)})["output"]

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 4)),)
    assert signature.outputs == (TensorSpec("output", "FP32", (-1, 3)),)
    assert (signature.batches, signature.platform) == (True, "pytorch_libtorch")
    with torch.inference_mode():
        expected = module(torch.from_numpy(ROWS.copy())).numpy()
    np.testing.assert_allclose(answer, expected, rtol=1e-5)
    for row, each in zip(ROWS, answer, strict=True):
        np.testing.assert_allclose(model.run({"x": read_only(row[None])})["output"][0], each, rtol=1e-5)
    assert checked(model.run, signature).signature.batches


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (GivesTuple(), ["output_0", "output_1"]),
        (GivesList(), ["output_0", "output_1"]),
        (GivesDict(), ["total", "twice"]),
        (GivesNamedTuple(), ["total", "twice"]),
    ],
    ids=["tuple", "list", "dict", "named tuple"],
)
def test_what_a_model_gives_gets_names(tmp_path: Path, module: torch.nn.Module, names: list[str]) -> None:
    model, signature = loaded(saved(tmp_path, module))

    answer = model.run({"x": read_only(ROWS)})

    total, twice = names
    assert signature.outputs == (TensorSpec(total, "FP32", (-1,)), TensorSpec(twice, "FP32", (-1, 4)))
    np.testing.assert_allclose(answer[total], ROWS.sum(1), rtol=1e-5, atol=1e-6)
    assert np.array_equal(answer[twice], ROWS * 2)


@pytest.mark.parametrize(
    "datatype",
    ["BOOL", "UINT8", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "UINT16", "UINT32", "UINT64"],
)
def test_every_datatype_goes_in_and_comes_out(tmp_path: Path, datatype: str) -> None:
    class Turned(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.transpose(1, 2)

    names = {"BOOL": "bool", "FP16": "float16", "FP32": "float32", "FP64": "float64"}
    array = np.array([[[0, 1, 1], [1, 0, 1]]]).astype(names.get(datatype, datatype.lower()))
    model, signature = loaded(saved(tmp_path, Turned()), {"x": (datatype, [-1, 2, 3])})

    answer = model.run({"x": read_only(array)})["output"]

    assert signature.outputs == (TensorSpec("output", datatype, (-1, 3, 2)),)
    assert answer.dtype == array.dtype
    assert np.array_equal(answer, array.transpose(0, 2, 1))


def test_bf16_comes_and_goes_as_its_words(tmp_path: Path) -> None:
    class Halved(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 2

    model, signature = loaded(saved(tmp_path, Halved()), {"x": ("BF16", [-1])})

    answer = model.run({"x": read_only(np.array([0x4000, 0xC080], np.uint16))})["output"]

    assert signature.outputs == (TensorSpec("output", "BF16", (-1,)),)
    assert answer.tolist() == [0x3F80, 0xC000]  # 2 and -4, halved


def test_a_traced_model_says_itself_what_it_was_traced_with(tmp_path: Path) -> None:
    model, signature = loaded(saved(tmp_path, Layers(), torch.ones(5, 4)), None)

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 4)),)
    assert signature.batches
    assert model.run({"x": read_only(ROWS)})["output"].shape == (7, 3)


def test_a_traced_model_that_takes_its_example_s_size_only_has_that(tmp_path: Path) -> None:
    class Fixed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.arange(20.0).reshape(5, 4)

    _, signature = loaded(saved(tmp_path, Fixed(), torch.ones(5, 4)), None)

    assert signature.inputs == (TensorSpec("x", "FP32", (5, 4)),)
    assert signature.outputs == (TensorSpec("output", "FP32", (5, 4)),)
    assert not signature.batches


def test_what_is_declared_comes_before_an_example(tmp_path: Path) -> None:
    file = saved(tmp_path, GivesTuple(), torch.ones(5, 4))

    _, signature = loaded(file, {"x": ("FP32", [-1, -1])}, {"first": ("FP32", [-1]), "second": ("FP32", [-1, -1])})

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, -1)),)
    assert signature.outputs == (TensorSpec("first", "FP32", (-1,)), TensorSpec("second", "FP32", (-1, -1)))


def test_without_a_declaration_the_refusal_shows_one(tmp_path: Path) -> None:
    assert refusal(saved(tmp_path, Layers()), None) == (
        "model.pt: the artifact does not tell the datatype and shape of input 'x': declare all such inputs in the"
        ' model\'s spec, like "signature": {"inputs": {"x": {"datatype": "FP32", "shape": [-1, 4]}}}, with -1 for any'
        " size"
    )


class Difference(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x - y, y - x


@pytest.mark.parametrize("names", [("y", "x"), ("INPUT__1", "INPUT__0"), ("minuend", "subtrahend")])
def test_inputs_are_found_by_name_by_number_or_as_they_follow(tmp_path: Path, names: tuple[str, str]) -> None:
    inputs: Tensors = {name: ("FP32", [-1]) for name in names}
    model, signature = loaded(saved(tmp_path, Difference()), inputs)

    answer = model.run(dict(zip(names, (np.array([1.0], np.float32), np.array([5.0], np.float32)), strict=True)))

    follows = names == ("minuend", "subtrahend")
    assert {spec.name for spec in signature.inputs} == set(names)
    assert answer["output_0"].tolist() == [-4.0 if follows else 4.0]


def test_outputs_are_named_as_declared_and_others_left_out(tmp_path: Path) -> None:
    inputs: Tensors = {"INPUT__0": ("FP32", [-1]), "INPUT__1": ("FP32", [-1])}
    model, signature = loaded(saved(tmp_path, Difference()), inputs, {"OUTPUT__1": ("FP32", [-1])})

    answer = model.run({"INPUT__0": np.array([1.0], np.float32), "INPUT__1": np.array([5.0], np.float32)})

    assert signature.outputs == (TensorSpec("OUTPUT__1", "FP32", (-1,)),)
    assert {name: array.tolist() for name, array in answer.items()} == {"OUTPUT__1": [4.0]}


def test_a_declaration_that_does_not_fit_is_refused_with_what_the_model_has(tmp_path: Path) -> None:
    file = saved(tmp_path, Difference())
    three: Tensors = {name: ("FP32", [-1]) for name in "abc"}

    assert refusal(file, three) == "model.pt: the signature declares inputs a, b, c; the model's are x, y"
    assert refusal(file, {"x": ("FP32", [-1]), "y": ("FP32", [-1])}, three) == (
        "model.pt: the signature declares outputs a, b, c; the model's are output_0, output_1"
    )


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, by: float, power: int = 1, shift: torch.Tensor | None = None) -> torch.Tensor:
        y = x * by
        if shift is not None:
            y = y + shift
        return y**power


def test_numbers_are_scalars_and_what_has_a_default_need_not_be_given(tmp_path: Path) -> None:
    file = saved(tmp_path, Scaled())
    model, signature = loaded(file)

    answer = model.run({"x": read_only(ROWS), "by": np.array(3.0)})["output"]

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 4)), TensorSpec("by", "FP64", ()))
    assert not signature.batches
    assert np.array_equal(answer, ROWS * np.float32(3))


def test_what_has_a_default_can_be_declared(tmp_path: Path) -> None:
    inputs: Tensors = FLOAT_ROWS | {"by": ("FP32", [1]), "shift": ("FP32", [4])}
    model, _ = loaded(saved(tmp_path, Scaled()), inputs)

    given = {"x": read_only(ROWS), "by": np.array([3.0], np.float32), "shift": np.ones(4, np.float32)}

    assert np.array_equal(model.run(given)["output"], ROWS * np.float32(3) + 1)


def test_a_number_takes_one_number(tmp_path: Path) -> None:
    assert refusal(saved(tmp_path, Scaled()), FLOAT_ROWS | {"by": ("FP32", [-1])}) == (
        "model.pt: the signature declares input by FP32[-1]; 'by' is one number: expected FP64[] or [1]"
    )


class GivesNested(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        return x, (x, x)


class GivesComplex(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"spectrum": torch.fft.fft(x)}


class TakesList(torch.nn.Module):
    def forward(self, x: list[torch.Tensor]) -> torch.Tensor:
        return x[0]


class Picky(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != 512:
            raise ValueError("512 samples are expected")
        return x.mean(1, keepdim=True)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (GivesNested(), "model.pt: output 'output_1' is a tuple of Tensor; expected a tensor: nothing may be nested"),
        (GivesComplex(), "model.pt: output 'spectrum' is torch.complex64; expected one of torch.bool, torch.uint8"),
        (TakesList(), "model.pt: argument 'x' of forward is a List[Tensor]; expected tensors and numbers: wrap"),
        (
            Picky(),
            "model.pt: the model raised on made-up inputs x FP32[-1, 4] (Error: builtins.ValueError: 512 samples",
        ),
    ],
    ids=["nested", "complex", "list", "picky"],
)
def test_what_no_signature_can_say_is_refused(tmp_path: Path, module: torch.nn.Module, message: str) -> None:
    assert refusal(saved(tmp_path, module)).startswith(message)


def test_a_model_that_takes_no_made_up_inputs_is_believed_what_is_declared(tmp_path: Path) -> None:
    model, signature = loaded(saved(tmp_path, Picky()), {"x": ("FP32", [-1, -1])}, {"mean": ("FP32", [-1, 1])})

    answer = model.run({"x": np.ones((2, 512), np.float32)})

    assert signature.outputs == (TensorSpec("mean", "FP32", (-1, 1)),)
    assert answer["mean"].tolist() == [[1.0], [1.0]]


def test_scalars_and_nothing_are_tensors_too(tmp_path: Path) -> None:
    class Sums(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"sum": x.sum(), "same": x}

    model, signature = loaded(saved(tmp_path, Sums()))

    answer = model.run({"x": np.zeros((0, 4), np.float32)})

    assert signature.outputs == (TensorSpec("sum", "FP32", ()), TensorSpec("same", "FP32", (-1, 4)))
    assert not signature.batches
    assert (answer["sum"].shape, answer["same"].shape) == ((), (0, 4))


def test_free_sizes_are_free_in_what_is_given_and_fixed_ones_stay(tmp_path: Path) -> None:
    class Lengths(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"same": x, "two": x[:, :1].repeat(1, 2)}

    _, signature = loaded(saved(tmp_path, Lengths()), {"x": ("FP32", [-1, -1])})

    assert signature.outputs == (TensorSpec("same", "FP32", (-1, -1)), TensorSpec("two", "FP32", (-1, 2)))


class Writes(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.view(-1).add_(1)
        return x


def test_a_model_that_writes_to_its_inputs_writes_to_a_copy(tmp_path: Path) -> None:
    model, _ = loaded(saved(tmp_path, Writes()))
    kept = read_only(ROWS)

    answer = model.run({"x": kept})["output"]

    assert np.array_equal(answer, ROWS + 1)
    assert np.array_equal(kept, ROWS)


class Counts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return self.total.clone()


class Remembers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total = self.total + x.sum(0)
        return self.total


@pytest.mark.parametrize("module", [Counts(), Remembers()], ids=["in place", "replaced"])
def test_a_model_with_state_of_its_own_forgets_it_where_a_sequence_starts(
    tmp_path: Path, module: torch.nn.Module
) -> None:
    model, signature = loaded(saved(tmp_path, module))

    def step(*, starts: bool) -> list[float]:
        given = {"x": np.ones((2, 4), np.float32), "sequence_start": np.array([starts])}
        return list(model.run(given)["output"])

    assert signature.inputs == (TensorSpec("x", "FP32", (-1, 4)), TensorSpec("sequence_start", "BOOL", (1,)))
    assert not signature.batches
    totals = [step(starts=starts)[0] for starts in (True, False, False, True, False)]
    assert totals == [2, 4, 6, 2, 4]


class Strided(torch.nn.Module):
    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        return x[:, ::step] + 1


def test_a_model_that_raises_says_so_and_runs_on(tmp_path: Path) -> None:
    """Frozen in memory and run as it was, torch 2.13 crashed here once another model had run."""
    loaded(saved(tmp_path, Layers()))[0].run({"x": read_only(ROWS)})
    model, _ = loaded(saved(tmp_path, Strided()))

    for _ in range(20):
        with pytest.raises(RuntimeError, match="slice step must be positive"):
            model.run({"x": read_only(ROWS), "step": np.array(0)})
    assert model.run({"x": read_only(ROWS), "step": np.array(2)})["output"].shape == (7, 2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[: len(raw) // 2], "model.pt: expected a whole zip archive, found {half} bytes without its"),
        (lambda raw: raw[:200] + bytes(100) + raw[300:], "model.pt: expected TorchScript; torch says: "),
    ],
    ids=["cut off", "overwritten"],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    file = saved(tmp_path, Layers())
    raw = file.read_bytes()
    file.write_bytes(damage(raw))

    said = refusal(file)

    assert said.startswith(message.format(half=len(raw) // 2))
    assert str(tmp_path) not in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda"}, "a GPU is asked for, and torch "),
        (
            {"torch": TorchSettings(cuda_graphs=(1, 8))},
            "model.pt: cuda_graphs are asked for in the model's spec, and it runs on the processor: they need a GPU",
        ),
        (
            {"torch": TorchSettings(compile="default")},
            "model.pt: the model's spec asks for torch.compile, which takes exported programs and networks",
        ),
        ({"outputs": ("margin",)}, "model.pt: output 'margin' is asked for; it gives the usual ones only"),
    ],
    ids=["cuda", "cuda graphs", "compile", "outputs"],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    assert refusal(saved(tmp_path, Layers()), **options).startswith(message)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_where_there_is_no_gpu_the_measurement_of_one_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["torch_gpu"])

    assert torch_gpu.main() == 1
    assert capsys.readouterr().err == "no GPU that torch can use: nothing is measured\n"
