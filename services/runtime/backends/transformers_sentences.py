"""One embedding a text: states of its tokens, pooled as the checkpoint says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from services.core.signature import TensorSpec
from services.runtime.backends import Arrays, BadArtifactError, refuse_unknown
from services.runtime.backends.texts import as_texts
from services.runtime.backends.transformers_checkpoint import Checkpoint, read_json, sentence_folder
from services.runtime.backends.transformers_task import TEXT, Network, Task, spec

EMBEDDING = "embedding"
Step = Callable[[Any], Any]  # [n, size] -> [n, size]
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
_NAMES = {"lasttoken": "last", "mean_sqrt_len_tokens": "mean_sqrt_len"}
_ACTIVATIONS: dict[str, Step] = {
    "Identity": lambda rows: rows,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "Sigmoid": torch.sigmoid,
    "GELU": torch.nn.functional.gelu,
}


class Embeddings(Task):
    """`embedding`: FP32 [n, size]. modules.json says how tokens are pooled, and what follows; without it, the mean."""

    def __init__(self, checkpoint: Checkpoint, asked: tuple[str, ...]) -> None:
        refuse_unknown(checkpoint.artifact, asked, ())
        self._network = Network(checkpoint)
        self._device = checkpoint.device
        self._modes: list[str] = []
        self._steps: list[Step] = []
        self._prompt, self._lowers = "", False
        folder = sentence_folder(checkpoint.artifact)
        if folder is not None:
            self._read(folder, checkpoint.artifact)
        if checkpoint.text.pooling is not None:
            self._modes = [checkpoint.text.pooling]
        self._modes = self._modes or ["mean"]
        self.inputs = (spec(TEXT),)
        self.outputs: tuple[TensorSpec, ...] = (spec(EMBEDDING, "FP32", self.run(self.example())[EMBEDDING].shape[1]),)

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        texts = [f"{self._prompt}{text}" for text in as_texts(TEXT, inputs[TEXT])]
        if self._lowers:
            texts = [text.lower() for text in texts]
        rows: NDArray | None = None
        for places, taken, given in self._network.launches(self._network.encode(texts)):
            pooled = _pooled(given.last_hidden_state.float(), taken["attention_mask"], self._modes)
            for step in self._steps:
                pooled = step(pooled)
            if rows is None:
                rows = np.empty((len(texts), pooled.shape[1]), np.float32)
            rows[places] = pooled.cpu().numpy()
        return {} if rows is None else {EMBEDDING: rows}

    def _read(self, folder: Path, artifact: Path) -> None:
        """modules.json, and what it names."""
        modules = read_json(folder / "modules.json", list)
        for module in modules:
            kind, place = str(module.get("type", "")).rpartition(".")[2], folder / str(module.get("path", ""))
            if not place.resolve().is_relative_to(folder.resolve()):
                raise BadArtifactError(f"modules.json: expected folders beside it, found {module.get('path')!r}")
            match kind:
                case "Transformer" if place.resolve() == artifact.parent.resolve():
                    pass
                case "Pooling":
                    self._modes = _modes(place / "config.json")
                case "Dense":
                    self._steps.append(_dense(place, self._device))
                case "Normalize":
                    self._steps.append(lambda rows: torch.nn.functional.normalize(rows, dim=-1))
                case _:
                    raise BadArtifactError(
                        f"modules.json: expected Transformer, Pooling, Dense and Normalize, found"
                        f" {module.get('type')!r} at {module.get('path')!r}"
                    )
        self._lowers = bool(_optional(artifact.parent / "sentence_bert_config.json").get("do_lower_case"))
        said = _optional(folder / "config_sentence_transformers.json")
        self._prompt = (said.get("prompts") or {}).get(said.get("default_prompt_name"), "")


def _optional(file: Path) -> dict[str, Any]:
    return dict(read_json(file)) if file.is_file() else {}


def _modes(file: Path) -> list[str]:
    said = read_json(file)
    named = said.get("pooling_mode")
    modes = [named] if isinstance(named, str) else list(named or [])
    modes = [_NAMES.get(mode, mode) for mode in modes] or [mode for flag, mode in _FLAGS.items() if said.get(flag)]
    if not modes or not set(modes) <= set(_FLAGS.values()):
        raise BadArtifactError(f"1_Pooling/{file.name}: expected one of {', '.join(_FLAGS)}, found {said}")
    if said.get("include_prompt") is False:
        raise BadArtifactError(f"1_Pooling/{file.name}: include_prompt false is not offered")
    return modes


def _dense(folder: Path, device: Any) -> Step:
    said = read_json(folder / "config.json")
    name = str(said.get("activation_function", "")).rpartition(".")[2] or "Identity"
    if name not in _ACTIVATIONS:
        expected = ", ".join(_ACTIVATIONS)
        raise BadArtifactError(f"{folder.name}/config.json: expected an activation of {expected}, found {name}")
    try:
        weights = load_file(folder / "model.safetensors", device=str(device))
        weight, bias = weights["linear.weight"].float(), weights.get("linear.bias")
    except Exception as error:
        raise BadArtifactError(f"{folder.name}/model.safetensors: expected linear.weight; {error}") from error
    activate = _ACTIVATIONS[name]
    return lambda rows: activate(torch.nn.functional.linear(rows, weight, None if bias is None else bias.float()))


def _pooled(states: Any, mask: Any, modes: list[str]) -> Any:
    """[n, tokens, size] and [n, tokens] -> [n, size of all modes]."""
    return torch.cat([_POOLS[mode](states, mask.unsqueeze(-1).to(states.dtype)) for mode in modes], dim=-1)


def _mean(states: Any, real: Any) -> Any:
    return (states * real).sum(1) / real.sum(1).clamp(min=1e-9)


def _mean_sqrt_len(states: Any, real: Any) -> Any:
    return (states * real).sum(1) / real.sum(1).clamp(min=1e-9).sqrt()


def _weighted_mean(states: Any, real: Any) -> Any:
    weights = torch.arange(1, states.shape[1] + 1, device=states.device, dtype=states.dtype)[None, :, None] * real
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


def _first(states: Any, real: Any) -> Any:
    """Of the first real token: some fill up in front."""
    return states[torch.arange(len(states)), real.squeeze(-1).argmax(1)]


def _last(states: Any, real: Any) -> Any:
    last = states.shape[1] - 1 - real.squeeze(-1).flip(1).argmax(1)
    return states[torch.arange(len(states)), last]


def _max(states: Any, real: Any) -> Any:
    return states.masked_fill(real == 0, float("-inf")).max(1).values


_POOLS: dict[str, Callable[[Any, Any], Any]] = {
    "cls": _first,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
    "last": _last,
}
