"""Reads checkpoints of Hugging Face Transformers: safetensors only, and never code of their own."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from services.core.text_spec import Text, TextTask
from services.runtime.backends import BadArtifactError, Options

CLASSES: dict[str, Any] = {
    "text-classification": AutoModelForSequenceClassification,
    "zero-shot-classification": AutoModelForSequenceClassification,
    "token-classification": AutoModelForTokenClassification,
    "fill-mask": AutoModelForMaskedLM,
    "feature-extraction": AutoModel,
}
_BY_ARCHITECTURE: tuple[tuple[str, TextTask], ...] = (
    ("ForSequenceClassification", "text-classification"),
    ("ForTokenClassification", "token-classification"),
    ("ForMaskedLM", "fill-mask"),
    ("Model", "feature-extraction"),
)
_HEADS = ("HeadModel", "HeadsModel")  # of models that write
_SENTENCES = "sentence_bert_config.json"
_USUAL_MAX_TOKENS = 512  # of models that say nothing
_LARGEST_SAID = 1 << 30  # tokenizers that know no limit say more


class Checkpoint(NamedTuple):
    """A checkpoint in memory."""

    artifact: Path
    task: TextTask
    text: Text
    tokenizer: Any
    model: Any
    device: Any
    max_tokens: int

    @property
    def labels(self) -> list[str]:
        """Names of the model's classes, in their order."""
        names = self.model.config.id2label
        return [str(names[number]) for number in range(len(names))]


def read(artifact: Path, options: Options) -> Checkpoint:
    """Load the checkpoint whose config.json `artifact` is. Raises BadArtifactError."""
    folder = artifact.parent
    _refuse_code(folder)
    task = options.text.task or _task(folder, artifact)
    torch.set_num_threads(options.threads)
    device = _device(options)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    own: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(folder, **own)
        tokenizer = AutoTokenizer.from_pretrained(folder, **own)
        model, info = CLASSES[task].from_pretrained(
            folder, config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **own
        )
    except Exception as error:
        said = " ".join(str(error).replace(f"{folder}/", "").replace(str(folder), folder.name).split())
        expected = f"expected a checkpoint for {task} with its tokenizer"
        raise BadArtifactError(f"{artifact.name}: {expected}; transformers says: {said[:500]}") from error
    _check_weights(artifact, task, info)
    _check_tokenizer(artifact, tokenizer, model)
    model.eval().to(device)
    limit = _limit(folder, tokenizer, model)
    wanted = options.text.max_tokens
    if wanted is not None and wanted > limit:
        raise BadArtifactError(f"{artifact.name}: text.max_tokens is {wanted}, and the model takes {limit}")
    return Checkpoint(artifact, task, options.text, tokenizer, model, device, wanted or limit)


def sentence_folder(artifact: Path) -> Path | None:
    """The folder of modules.json, if the checkpoint is part of a pipeline for embeddings of sentences."""
    places = (artifact.parent, artifact.parent.parent)
    return next((place for place in places if (place / "modules.json").is_file()), None)


def read_json(file: Path, kind: type[dict[Any, Any] | list[Any]] = dict) -> Any:
    """Raises BadArtifactError."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadArtifactError(f"{file.name}: expected JSON; {error}") from error
    if not isinstance(found, kind):
        raise BadArtifactError(f"{file.name}: expected a {kind.__name__} in JSON, found a {type(found).__name__}")
    return found


def _refuse_code(folder: Path) -> None:
    for name in ("config.json", "tokenizer_config.json", "processor_config.json"):
        file = folder / name
        if file.is_file() and "auto_map" in read_json(file):
            raise BadArtifactError(f"{name} has auto_map: the checkpoint needs code of its own, which is never run")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = read_json(index).get("weight_map", {}).values()
        if strange := [name for name in files if Path(name).name != name]:
            raise BadArtifactError(f"{index.name}: expected names of files beside it, found {strange[0]!r}")


def _task(folder: Path, artifact: Path) -> TextTask:
    if sentence_folder(artifact) is not None:
        return "feature-extraction"
    named = read_json(folder / "config.json").get("architectures") or []
    name = str(next(iter(named), ""))
    found = next((task for end, task in _BY_ARCHITECTURE if name.endswith(end)), None)
    if found is None or name.endswith(_HEADS):
        ends = ", ".join(f"…{end} ({task})" for end, task in _BY_ARCHITECTURE)
        raise BadArtifactError(
            f"{artifact.name}: expected an architecture of {ends}, or text.task in the model's spec; found"
            f" {', '.join(map(str, named)) or 'none'}"
        )
    return found


def _device(options: Options) -> Any:
    there = options.device != "cpu" and torch.cuda.is_available()
    if options.device == "cuda" and not there:
        raise BadArtifactError("a GPU is asked for, and torch finds none")
    return torch.device("cuda" if there else "cpu")


def _check_weights(artifact: Path, task: str, info: dict[str, Any]) -> None:
    """What is missing would be made up. Nobody reads the pooler of a model that gives states of tokens."""
    missing = sorted(info["missing_keys"])
    if task == "feature-extraction":
        missing = [name for name in missing if "pooler" not in name.split(".")]
    if missing:
        some = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        raise BadArtifactError(f"{artifact.name}: expected weights for {task}; these are missing: {some}")


def _check_tokenizer(artifact: Path, tokenizer: Any, model: Any) -> None:
    if not tokenizer.is_fast:
        raise BadArtifactError(f"{artifact.name}: expected a fast tokenizer, found a {type(tokenizer).__name__}")
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        raise BadArtifactError(
            f"{artifact.name}: its tokenizer has {len(tokenizer)} tokens, and the model knows {known}: they do not"
            " belong together"
        )
    if tokenizer.pad_token is None:  # it is masked: any will do
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise BadArtifactError(f"{artifact.name}: its tokenizer has no token to fill up with")
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def _limit(folder: Path, tokenizer: Any, model: Any) -> int:
    """Tokens that the model takes: the least that anything says."""
    said = [tokenizer.model_max_length] if tokenizer.model_max_length < _LARGEST_SAID else []
    if (folder / _SENTENCES).is_file():
        said += filter(None, [read_json(folder / _SENTENCES).get("max_seq_length")])
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            # Some models count positions from behind the padding's own.
            said.append(module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1))
    return int(min(said, default=getattr(model.config, "max_position_embeddings", None) or _USUAL_MAX_TOKENS))
