"""Which execution providers a model runs on: asked for by the model's spec or the instance's device, and checked.

onnxruntime itself falls back to the processor without a word.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from services.core.onnx_spec import OnnxSettings, Provider
from services.runtime.backends import BadArtifactError, Device


class _Kind(NamedTuple):
    name: str  # in onnxruntime
    needs_gpu: bool
    package: str  # that has it


_KINDS: Mapping[Provider, _Kind] = {
    "cpu": _Kind("CPUExecutionProvider", False, "onnxruntime"),
    "cuda": _Kind("CUDAExecutionProvider", True, "onnxruntime-gpu"),
    "tensorrt": _Kind("TensorrtExecutionProvider", True, "onnxruntime-gpu, beside TensorRT"),
    "openvino": _Kind("OpenVINOExecutionProvider", False, "onnxruntime-openvino"),
}
CPU = _KINDS["cpu"].name

Chosen = list[tuple[str, dict[str, str]]]


def chosen(artifact: Path, settings: OnnxSettings, device: Device, installed: Collection[str]) -> Chosen:
    """Providers to use, as onnxruntime names them, with their options. Raises BadArtifactError where one cannot be."""
    providers: Sequence[Provider] = settings.providers
    if not providers:
        has_cuda = _KINDS["cuda"].name in installed
        providers = ("cuda",) if device == "cuda" or (device == "auto" and has_cuda) else ("cpu",)
    for provider in providers:
        kind = _KINDS[provider]
        if kind.needs_gpu and device == "cpu":
            raise BadArtifactError(
                f"{artifact.name}: provider {provider} needs a GPU, and the instance has none: it needs a pod that has"
                " one, and instances.kind auto or gpu"
            )
        if kind.name not in installed:
            raise BadArtifactError(
                f"{artifact.name}: provider {provider} is asked for; the installed onnxruntime has"
                f" {', '.join(installed)}: it is in the package {kind.package}"
            )
    if device == "cuda" and not any(_KINDS[provider].needs_gpu for provider in providers):
        raise BadArtifactError(
            f"{artifact.name}: the instance is to run on a GPU, and onnx.providers names none that does:"
            f" {', '.join(providers)}"
        )
    named: tuple[Provider, ...] = tuple(providers) if "cpu" in providers else (*providers, "cpu")
    return [(_KINDS[each].name, dict(settings.provider_options.get(each, {}))) for each in named]


def with_engines(providers: Chosen, cache: Path | None) -> Chosen:
    """TensorRT's engines, which take minutes to build, kept in the folder `cache` if the operator says nothing else."""
    if cache is None:
        return providers
    engines = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": str(cache)}
    return [(name, engines | options if name == _KINDS["tensorrt"].name else options) for name, options in providers]


def check(artifact: Path, asked: Chosen, session: Any) -> None:
    """Raise BadArtifactError when the session runs without one of them."""
    found = session.get_providers()
    missing = [name for name, _ in asked if name not in found]
    if missing:
        raise BadArtifactError(
            f"{artifact.name}: {missing[0]} was asked for and could not be used; onnxruntime would run it on"
            f" {', '.join(found)}"
        )
