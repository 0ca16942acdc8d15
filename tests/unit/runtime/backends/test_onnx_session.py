"""On what ONNX models run, what is kept of them, and what memory they take."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from services.core.onnx_spec import OnnxSettings
from services.core.spec import BadValueError
from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.onnx import Model
from services.runtime.backends.onnx_cache import is_worth, key
from services.runtime.backends.onnx_providers import check, chosen, with_engines
from services.runtime.backends.onnx_wire import outline

CPU, CUDA, OPENVINO = "CPUExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
FILE = Path("model.onnx")
ROWS = np.random.default_rng(2).normal(size=(3, 8)).astype(np.float32)


def settings(text: str = "{}") -> OnnxSettings:
    return OnnxSettings.parse(text.encode())


def deep(folder: Path, layers: int = 120) -> Path:
    """A graph of many nodes, half of which optimisation takes away."""
    weights = [numpy_helper.from_array(np.eye(8, dtype=np.float32) * 1.01, "w")]
    nodes, last = [], "x"
    for number in range(layers):
        nodes.append(helper.make_node("MatMul", [last, "w"], [f"m{number}"]))
        nodes.append(helper.make_node("Identity", [f"m{number}"], [f"i{number}"]))
        last = f"i{number}"
    nodes.append(helper.make_node("Relu", [last], ["y"]))
    nodes.append(helper.make_node("ReduceSum", [last, "axes"], ["sum"], keepdims=0))
    weights.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
    value = helper.make_tensor_value_info
    outputs = [value("y", TensorProto.FLOAT, ["n", 8]), value("sum", TensorProto.FLOAT, ["n"])]
    graph = helper.make_graph(nodes, "deep", [value("x", TensorProto.FLOAT, ["n", 8])], outputs, weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx"
    )
    return folder / "model.onnx"


def answer(file: Path, cache: Path | None, **fields: object) -> np.ndarray:
    model = Model()
    model.load(file, Options(cache=cache, onnx=OnnxSettings.model_validate(fields)))
    return model.run({"x": ROWS})["y"]


@pytest.mark.parametrize(
    ("spec", "device", "installed", "expected"),
    [
        ("{}", "cpu", [CUDA, CPU], [CPU]),
        ("{}", "auto", [CPU], [CPU]),
        ("{}", "auto", [CUDA, CPU], [CUDA, CPU]),
        ("{}", "cuda", [CUDA, CPU], [CUDA, CPU]),
        ('{"providers": ["tensorrt", "cuda"]}', "cuda", [TENSORRT, CUDA, CPU], [TENSORRT, CUDA, CPU]),
        ('{"providers": ["openvino"]}', "cpu", [OPENVINO, CPU], [OPENVINO, CPU]),
        ('{"providers": ["cpu"]}', "auto", [CUDA, CPU], [CPU]),
    ],
)
def test_providers_are_those_asked_for_and_the_processor_last(
    spec: str, device: str, installed: list[str], expected: list[str]
) -> None:
    assert [name for name, _ in chosen(FILE, settings(spec), device, installed)] == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "device", "installed", "fault"),
    [
        ('{"providers": ["cuda"]}', "cpu", [CUDA, CPU], "provider cuda needs a GPU, and the instance has none"),
        (
            "{}",
            "cuda",
            [CPU],
            "provider cuda is asked for; the installed onnxruntime has CPUExecutionProvider: it is in",
        ),
        ('{"providers": ["openvino"]}', "auto", [CPU], "provider openvino is asked for; .*onnxruntime-openvino"),
        (
            '{"providers": ["cpu"]}',
            "cuda",
            [CUDA, CPU],
            "the instance is to run on a GPU, and onnx.providers names none",
        ),
    ],
)
def test_a_provider_that_cannot_be_used_is_refused(spec: str, device: str, installed: list[str], fault: str) -> None:
    with pytest.raises(BadArtifactError, match=f"^model.onnx: {fault}"):
        chosen(FILE, settings(spec), device, installed)  # type: ignore[arg-type]


def test_engines_of_tensorrt_are_kept_where_the_operator_says_nothing_else() -> None:
    providers = [(TENSORRT, {"trt_engine_cache_path": "/engines"}), (CPU, {})]

    assert with_engines(providers, None) == providers
    assert with_engines(providers, Path("/kept")) == [
        (TENSORRT, {"trt_engine_cache_enable": "1", "trt_engine_cache_path": "/engines"}),
        (CPU, {}),
    ]


def test_a_session_that_fell_back_in_silence_is_refused(tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(str(deep(tmp_path)), providers=[CPU])
    check(FILE, [(CPU, {})], session)
    with pytest.raises(
        BadArtifactError, match=f"^model.onnx: {CUDA} was asked for and could not be used; .* on {CPU}$"
    ):
        check(FILE, [(CUDA, {}), (CPU, {})], session)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"providers": ["cpu", "cpu"]}', "providers: one is named twice"),
        ('{"provider_options": {"cuda": {"device_id": "1"}}}', "provider_options: cuda is not among providers"),
        ('{"providers": ["gpu"]}', "providers.0: .*'cpu', 'cuda', 'tensorrt' or 'openvino'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(text: str, fault: str) -> None:
    with pytest.raises(BadValueError, match=fault):
        settings(text)


def test_options_of_a_provider_reach_it(tmp_path: Path) -> None:
    options = {"cpu": {"arena_extend_strategy": "kSameAsRequested"}}

    assert chosen(FILE, OnnxSettings(provider_options=options), "cpu", [CPU]) == [(CPU, options["cpu"])]  # type: ignore[arg-type]
    assert np.array_equal(answer(deep(tmp_path), None, provider_options=options), answer(tmp_path / "model.onnx", None))


def test_an_optimised_graph_is_kept_and_used(tmp_path: Path) -> None:
    file, cache = deep(tmp_path), tmp_path / "cache"
    cache.mkdir()
    first = answer(file, cache)
    (kept,) = cache.iterdir()
    again = answer(file, cache)
    file.unlink()  # the kept graph alone is read
    (tmp_path / "model.onnx").write_bytes(kept.read_bytes())
    nodes = outline(kept).nodes

    assert kept.name.startswith("optimised-")
    assert nodes < 200
    assert first.tobytes() == again.tobytes()
    assert list(cache.iterdir()) == [kept]


@pytest.mark.parametrize("harm", ["cut", "changed", "renamed"])
def test_a_kept_graph_that_is_not_as_it_was_written_is_made_again(tmp_path: Path, harm: str) -> None:
    file, cache = deep(tmp_path), tmp_path / "cache"
    cache.mkdir()
    first = answer(file, cache)
    (kept,) = cache.iterdir()
    content = kept.read_bytes()
    if harm == "cut":
        kept.write_bytes(content[:-20])
    elif harm == "changed":
        place = content.index(np.float32(1.01).tobytes())
        kept.write_bytes(content[:place] + np.float32(9).tobytes() + content[place + 4 :])
    else:
        kept.rename(kept.with_name(f"{kept.name[:-13]}00000000.onnx"))
    again = answer(file, cache)

    assert first.tobytes() == again.tobytes()
    assert [each.name for each in cache.iterdir()] == [kept.name]
    assert kept.read_bytes() == content


@pytest.mark.parametrize("cache", ["absent", "file"])
def test_where_nothing_can_be_kept_the_model_loads_all_the_same(tmp_path: Path, cache: str) -> None:
    (tmp_path / "file").write_text("no folder")

    assert np.array_equal(answer(deep(tmp_path), tmp_path / cache), answer(tmp_path / "model.onnx", None))


def test_nothing_is_kept_where_that_is_switched_off_or_gains_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    answer(deep(tmp_path), tmp_path / "cache", cache_optimized=False)
    answer(deep(tmp_path, layers=10), tmp_path / "cache")

    assert list((tmp_path / "cache").iterdir()) == []
    assert [is_worth(860, 11 << 20), is_worth(95, 3 << 20), is_worth(1_000, 300 << 20)] == [True, False, False]


def test_another_release_or_choice_has_a_graph_of_its_own() -> None:
    assert key("a", "1.32.0", [(CPU, {})]) == key("a", "1.32.0", [(CPU, {})])
    assert key("a", "1.32.0", [(CPU, {})]) != key("a", "1.33.0", [(CPU, {})])


def test_only_the_outputs_that_are_asked_for_are_given(tmp_path: Path) -> None:
    model = Model()
    model.load(deep(tmp_path), Options())

    assert model.run_only({"x": ROWS}, ["sum"]).keys() == {"sum"}
    assert model.run({"x": ROWS}).keys() == {"y", "sum"}


_SHAPES = """
import sys
import numpy as np
from pathlib import Path
from services.chassis.process import keep_freed_memory
from services.runtime.backends import Options
from services.runtime.backends.onnx import Model

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / (1 << 20)

keep_freed_memory()
model = Model()
model.load(Path(sys.argv[1]), Options())
rng = np.random.default_rng(0)
sizes = [(96, 96), *rng.integers(8, 97, (200, 2)).tolist()]
after = []
for height, width in sizes:
    model.run({"x": np.ones((1, 3, height, width), np.float32)})
    after.append(resident_mib())
print(after[0], max(after[1:]))
"""


def test_two_hundred_shapes_take_no_more_memory_than_the_largest(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    widths = [3, 32, 32, 32]
    nodes, weights, last = [], [], "x"
    for number, (before, after) in enumerate(pairwise(widths)):
        kernel = rng.normal(scale=0.1, size=(after, before, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{number}"))
        nodes.append(helper.make_node("Conv", [last, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        last = f"r{number}"
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"]))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "images", [value("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [value("y", TensorProto.FLOAT, ["n", 32, 1, 1])], weights,
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "model.onnx")
    command = [sys.executable, "-c", _SHAPES, str(tmp_path / "model.onnx")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)

    first, most = map(float, done.stdout.split())
    assert most - first < 4, f"{first:.0f} MiB after the largest, {most:.0f} MiB at most after 200 others"
