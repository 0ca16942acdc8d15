"""Sessions of onnxruntime: providers, memory and the kept graph."""

from pathlib import Path
from typing import Any

import onnxruntime as ort

from services.runtime.backends import BadArtifactError, Options
from services.runtime.backends.onnx_cache import GraphCache, is_worth, key
from services.runtime.backends.onnx_providers import CPU, Chosen, check, chosen, with_engines
from services.runtime.backends.onnx_wire import Outline

_FATAL = 4  # errors are raised, and need not be printed too


def open_session(artifact: Path, options: Options, outline: Outline) -> Any:
    """A session on the providers that are asked for. Raises BadArtifactError."""
    providers = chosen(artifact, options.onnx, options.device, ort.get_available_providers())
    if options.onnx.cache_optimized:
        providers = with_engines(providers, options.cache)
    try:
        session = _open(artifact, options, outline, providers)
    except Exception as error:
        reason = str(error).replace(str(artifact), artifact.name).replace(f"{artifact.parent}/", "")
        expected = "an ONNX model with its external data beside it" if "xternal" in reason else "an ONNX model"
        raise BadArtifactError(f"{artifact.name}: expected {expected}; onnxruntime says: {reason}") from error
    check(artifact, providers, session)
    return session


def _open(artifact: Path, options: Options, outline: Outline, providers: Chosen) -> Any:
    def plain(written: Path | None = None) -> Any:
        settings = _settings(options, outline)
        if written is not None:
            settings.optimized_model_filepath = str(written)
        return ort.InferenceSession(str(artifact), settings, providers=providers)

    def kept(file: Path) -> Any:
        settings = _settings(options, outline)
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL  # that was done
        return ort.InferenceSession(str(file), settings, providers=providers)

    is_alone = [name for name, _ in providers] == [CPU] and not outline.has_external_data
    if options.cache is None or not (is_alone and options.onnx.cache_optimized):
        return plain()
    if not is_worth(outline.nodes, artifact.stat().st_size):
        return plain()
    cache = GraphCache(options.cache, key(artifact.name, ort.__version__, providers))
    return cache.load(kept) or cache.fill(plain) or plain()


def _settings(options: Options, outline: Outline) -> Any:
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = _FATAL
    # Measured with 200 shapes of images: the arena grows to what the largest needs and stays there, to two thirds of
    # that without patterns; without an arena, or with one that shrinks after each run, memory grows further.
    settings.enable_mem_pattern = not outline.has_free_sizes
    return settings
