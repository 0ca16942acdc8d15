"""Text classification, and classes of tokens as entities."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.core.signature import TensorSpec
from services.runtime.backends import Arrays, refuse_unknown
from services.runtime.backends.labels import LABEL, PROBABILITIES, VALUE
from services.runtime.backends.texts import as_texts
from services.runtime.backends.transformers_checkpoint import Checkpoint
from services.runtime.backends.transformers_task import TEXT, Network, Task, as_bytes, sigmoid, softmax, spec

PAIR, SCORE, LOGITS, ENTITIES, TOKENS = "pair", "score", "logits", "entities", "tokens"
_OUTSIDE = "O"
_DIGITS = 4  # of scores in JSON: more would differ with whom a text shares its launch


class Classes(Task):
    """`label`, its `score`, and `probabilities` in the order of the checkpoint's id2label; `y` of a regression."""

    def __init__(self, checkpoint: Checkpoint, asked: tuple[str, ...]) -> None:
        refuse_unknown(checkpoint.artifact, asked, (LOGITS,))
        self._network = Network(checkpoint)
        self._labels = as_bytes(checkpoint.labels)
        config = checkpoint.model.config
        count = len(self._labels)
        self._is_regression = config.problem_type == "regression"
        is_independent = config.problem_type == "multi_label_classification" or count == 1
        self._probabilities = sigmoid if is_independent else softmax
        self._has_pair = checkpoint.text.pair
        self._gives_logits = LOGITS in asked
        value = (spec(VALUE, "FP32", *([count] if count > 1 else [])),)
        usual = (spec(LABEL), spec(SCORE, "FP32"), spec(PROBABILITIES, "FP32", count))
        self.inputs = (spec(TEXT), spec(PAIR)) if self._has_pair else (spec(TEXT),)
        self.outputs: tuple[TensorSpec, ...] = value if self._is_regression else usual
        self.outputs += tuple(spec(name, "FP32", count) for name in asked)

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        pairs = as_texts(PAIR, inputs[PAIR]) if self._has_pair else None
        logits = self._network.logits(self._network.encode(as_texts(TEXT, inputs[TEXT]), pairs))
        if self._is_regression:
            answers = {VALUE: logits if logits.shape[1] > 1 else logits[:, 0]}
        else:
            answers = self._classes(logits)
        if self._gives_logits:
            answers[LOGITS] = logits
        return answers

    def example(self) -> Arrays:
        texts = super().example()
        return {**texts, PAIR: texts[TEXT][::-1]} if self._has_pair else texts

    def _classes(self, logits: NDArray) -> dict[str, NDArray]:
        probabilities = self._probabilities(logits)
        best = probabilities.argmax(axis=1)
        scores = np.take_along_axis(probabilities, best[:, None], axis=1)[:, 0]
        return {LABEL: self._labels[best], SCORE: scores, PROBABILITIES: probabilities}


class Entities(Task):
    """`entities`: for each text a JSON list; on request `tokens`, the same for each token.

    Tokens that follow each other with one label (B- and I- left out) are one entity, unless a B- begins another.
    """

    def __init__(self, checkpoint: Checkpoint, asked: tuple[str, ...]) -> None:
        refuse_unknown(checkpoint.artifact, asked, (TOKENS,))
        self._network = Network(checkpoint)
        self._labels = checkpoint.labels
        self._asked = asked
        self.inputs = (spec(TEXT),)
        self.outputs: tuple[TensorSpec, ...] = tuple(spec(name) for name in (ENTITIES, *asked))

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        texts = as_texts(TEXT, inputs[TEXT])
        encoded = self._network.encode(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
        rows: list[list[dict[str, Any]]] = [[] for _ in texts]
        for launch in self._network.launches(encoded):
            logits = launch.given.logits.float().cpu().numpy()
            real = launch.taken["attention_mask"].cpu().numpy().astype(bool)
            for place, of_tokens, is_real in zip(launch.places, logits, real, strict=True):
                rows[place] = list(self._tokens(encoded, place, softmax(of_tokens[is_real]), texts[place]))
        answers = {ENTITIES: as_bytes([_json(_entities(row, text)) for row, text in zip(rows, texts, strict=True)])}
        if self._asked:
            answers[TOKENS] = as_bytes([_json(row) for row in rows])
        return answers

    def _tokens(self, encoded: Any, place: int, probabilities: NDArray, text: str) -> Iterator[dict[str, Any]]:
        """Tokens that stand for something in the text."""
        places = zip(encoded["offset_mapping"][place], encoded["special_tokens_mask"][place], strict=True)
        for ((start, end), is_special), shares in zip(places, probabilities, strict=True):
            if not is_special:
                best = int(shares.argmax())
                yield _found(self._labels[best], float(shares[best]), start, end, text)


def _entities(tokens: Sequence[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    groups: list[list[dict[str, Any]]] = []
    before = _OUTSIDE
    for token in tokens:
        label = _plain(token["label"])
        if label != _OUTSIDE:
            if label == before and not token["label"].startswith("B-"):
                groups[-1].append(token)
            else:
                groups.append([token])
        before = label
    return [
        _found(
            _plain(group[0]["label"]),
            sum(token["score"] for token in group) / len(group),
            group[0]["start"],
            group[-1]["end"],
            text,
        )
        for group in groups
    ]


def _found(label: str, score: float, start: int, end: int, text: str) -> dict[str, Any]:
    return {"label": label, "score": score, "start": start, "end": end, "text": text[start:end]}


def _plain(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label


def _json(rows: Sequence[dict[str, Any]]) -> str:
    return json.dumps([row | {"score": round(row["score"], _DIGITS)} for row in rows], ensure_ascii=False)
