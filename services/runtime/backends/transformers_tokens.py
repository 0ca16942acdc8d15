"""Words for a mask, and classes that a model never saw."""

import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from services.core.errors import INVALID_ARGUMENT
from services.core.signature import TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import Arrays, BadArtifactError, ModelError, refuse_unknown
from services.runtime.backends.labels import LABEL, PROBABILITIES
from services.runtime.backends.texts import as_texts
from services.runtime.backends.transformers_checkpoint import Checkpoint
from services.runtime.backends.transformers_classes import SCORE
from services.runtime.backends.transformers_task import TEXT, Network, Task, as_bytes, softmax, spec

TOKEN, LABELS, SCORES = "token", "labels", "scores"
_MOST_LOGITS = 64 << 20  # of a launch: every token has one for each word of the vocabulary
_MOST_LABELS = 256  # of a row
_DIGITS = 4


class Masks(Task):
    """`token` and `score`, each [n, top_k]: the likeliest for the one mask in each text, the best first."""

    def __init__(self, checkpoint: Checkpoint, asked: tuple[str, ...]) -> None:
        refuse_unknown(checkpoint.artifact, asked, ())
        vocabulary = checkpoint.model.get_input_embeddings().num_embeddings
        self._network = Network(checkpoint, _MOST_LOGITS // vocabulary)
        tokenizer = checkpoint.tokenizer
        if tokenizer.mask_token is None:
            raise BadArtifactError(f"{checkpoint.artifact.name}: fill-mask needs a tokenizer that has a mask")
        self._mask, self._mask_id = tokenizer.mask_token, tokenizer.mask_token_id
        self._top_k = min(checkpoint.text.top_k, vocabulary)
        self.inputs = (spec(TEXT),)
        self.outputs: tuple[TensorSpec, ...] = (spec(TOKEN, BYTES, self._top_k), spec(SCORE, "FP32", self._top_k))

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        encoded = self._network.encode(as_texts(TEXT, inputs[TEXT]))
        for tokens in encoded["input_ids"]:
            if (count := tokens.count(self._mask_id)) != 1:
                raise ModelError(
                    INVALID_ARGUMENT,
                    f"expected exactly one {self._mask} in what the model reads of each text, found {count}",
                )
        rows = len(encoded["input_ids"])
        tokens, scores = np.empty((rows, self._top_k), object), np.empty((rows, self._top_k), np.float32)
        for places, taken, given in self._network.launches(encoded):
            best = torch.softmax(given.logits[taken["input_ids"] == self._mask_id].float(), -1).topk(self._top_k)
            scores[places] = best.values.cpu().numpy()
            for place, words in zip(places, best.indices.tolist(), strict=True):
                tokens[place] = [self._network.tokenizer.decode([word]).encode() for word in words]
        return {TOKEN: tokens, SCORE: scores}

    def example(self) -> Arrays:
        return {TEXT: as_bytes([f"A {self._mask}.", f"Another text about the {self._mask}, longer than the first."])}


class ZeroShot(Task):
    """How well each label fits a text: labels of the model's spec, or a JSON list of each row, `labels`.

    A model of inference judges "text" against the hypothesis with each label in it.
    """

    def __init__(self, checkpoint: Checkpoint, asked: tuple[str, ...]) -> None:
        refuse_unknown(checkpoint.artifact, asked, ())
        self._network = Network(checkpoint)
        self._text = checkpoint.text
        names = [name.lower() for name in checkpoint.labels]
        entails = [place for place, name in enumerate(names) if name.startswith("entail")]
        if len(entails) != 1 or len(names) < 2:
            raise BadArtifactError(
                f"{checkpoint.artifact.name}: zero-shot-classification needs a model of inference, with a class"
                f" 'entailment' and others; found {', '.join(checkpoint.labels)}"
            )
        self._entails = entails[0]
        contradicts = [place for place, name in enumerate(names) if name.startswith("contradict")]
        self._other = contradicts[0] if contradicts else (0 if self._entails else len(names) - 1)
        fixed = self._text.labels
        self.inputs = (spec(TEXT),) if fixed else (spec(TEXT), spec(LABELS))
        last = spec(PROBABILITIES, "FP32", len(fixed)) if fixed else spec(SCORES)
        self.outputs: tuple[TensorSpec, ...] = (spec(LABEL), spec(SCORE, "FP32"), last)

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        texts = as_texts(TEXT, inputs[TEXT])
        fixed = list(self._text.labels)
        labels = [fixed] * len(texts) if fixed else [_labels(each) for each in as_texts(LABELS, inputs[LABELS])]
        premises = [text for text, each in zip(texts, labels, strict=True) for _ in each]
        hypotheses = [self._text.hypothesis.replace("{}", label) for each in labels for label in each]
        encoded = self._network.encode(premises, hypotheses, truncation="only_first")
        logits = self._network.logits(encoded)
        ends = np.cumsum([len(each) for each in labels])[:-1]
        shares = [self._shares(rows) for rows in np.split(logits, ends)]
        best = [int(each.argmax()) for each in shares]
        answers: dict[str, NDArray] = {
            LABEL: as_bytes([each[place] for each, place in zip(labels, best, strict=True)]),
            SCORE: np.array([each[place] for each, place in zip(shares, best, strict=True)], np.float32),
        }
        if fixed:
            answers[PROBABILITIES] = np.stack(shares).astype(np.float32)
        else:
            answers[SCORES] = as_bytes([_json(*each) for each in zip(labels, shares, strict=True)])
        return answers

    def example(self) -> Arrays:
        texts = super().example()
        return texts if self._text.labels else {**texts, LABELS: as_bytes(['["travel", "cooking"]'] * len(texts[TEXT]))}

    def _shares(self, logits: NDArray) -> NDArray:
        """Of one text's labels."""
        if self._text.multi_label or len(logits) == 1:
            return softmax(logits[:, [self._other, self._entails]])[:, 1]
        return softmax(logits[:, self._entails])


def _labels(text: str) -> list[str]:
    try:
        labels: Any = json.loads(text)
    except ValueError:
        labels = None
    is_list = isinstance(labels, list) and all(isinstance(label, str) and label for label in labels)
    if not is_list or not 0 < len(labels) <= _MOST_LABELS:
        message = f'input {LABELS!r}: expected a JSON list of 1 to {_MOST_LABELS} texts for each row, as ["a", "b"]'
        raise ModelError(INVALID_ARGUMENT, message)
    return list(dict.fromkeys(labels))


def _json(labels: list[str], shares: NDArray) -> str:
    """The best first."""
    order = sorted(range(len(labels)), key=lambda place: -shares[place])
    return json.dumps({labels[place]: round(float(shares[place]), _DIGITS) for place in order}, ensure_ascii=False)
