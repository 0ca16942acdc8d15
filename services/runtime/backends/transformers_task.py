"""What all tasks of text models share: texts in, launches of texts of like length, the states that come out."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from services.core.errors import INVALID_ARGUMENT
from services.core.signature import TensorSpec
from services.core.tensor import BYTES
from services.runtime.backends import Arrays, ModelError
from services.runtime.backends.texts import together
from services.runtime.backends.transformers_checkpoint import Checkpoint

TEXT = "text"
_MOST_TOKENS = 16_384  # of a launch, filled up: bounds the memory that it takes
_CHARACTERS_A_TOKEN = 32  # more of a text than this for each token that the model takes is not looked at
_EXAMPLES = ("A text.", "Another text, of Ada in Paris, which is longer than the first.")


class Launch(NamedTuple):
    """Texts that run together: their positions in the batch, what the model took, and what it gave."""

    places: list[int]
    taken: Any
    given: Any


class Task(Protocol):
    """One task of one checkpoint."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    @abstractmethod
    def __init__(self, checkpoint: Checkpoint, asked: tuple[str, ...]) -> None: ...

    @abstractmethod
    def run(self, inputs: Arrays) -> dict[str, NDArray]: ...

    def example(self) -> Arrays:
        """Two rows of different lengths."""
        return {TEXT: as_bytes(_EXAMPLES)}


def spec(name: str, datatype: str = BYTES, *shape: int) -> TensorSpec:
    """A tensor of rows, each of `shape`."""
    return TensorSpec(name, datatype, (-1, *shape))


def as_bytes(texts: Sequence[str]) -> NDArray:
    """BYTES [n]."""
    array = np.empty(len(texts), dtype=object)
    array[:] = [text.encode() for text in texts]
    return array


class Network:
    """Tokenizer and model of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, most_tokens: int = _MOST_TOKENS) -> None:
        self.tokenizer = checkpoint.tokenizer
        self.most_tokens = max(most_tokens, checkpoint.max_tokens)
        self._model = checkpoint.model
        self._device = checkpoint.device
        self._max_tokens = checkpoint.max_tokens
        self._most_characters = checkpoint.max_tokens * _CHARACTERS_A_TOKEN
        self._keeps_end = checkpoint.tokenizer.truncation_side == "left"

    def encode(self, texts: list[str], pairs: list[str] | None = None, **extra: Any) -> Any:
        """Tokens of each text (with its pair's), cut to what the model takes. Raises ModelError for a text of none."""
        try:
            encoded = self.tokenizer(
                self._bounded(texts),
                self._bounded(pairs) if pairs is not None else None,
                max_length=self._max_tokens,
                **({"truncation": True} | extra),
            )
        except Exception as error:
            if "runcation" not in str(error):
                raise
            message = f"what goes with a text leaves it no room in the {self._max_tokens} tokens that the model takes"
            raise ModelError(INVALID_ARGUMENT, message) from None
        if not all(encoded["input_ids"]):
            raise ModelError(INVALID_ARGUMENT, "a text has no tokens: the model needs one at least")
        return encoded

    def launches(self, encoded: Any) -> Iterator[Launch]:
        """Run everything in `encoded`, texts of like length together."""
        names = [name for name in self.tokenizer.model_input_names if name in encoded]
        for places in together([len(tokens) for tokens in encoded["input_ids"]], self.most_tokens):
            rows = {name: [encoded[name][place] for place in places] for name in names}
            taken = self.tokenizer.pad(rows, return_tensors="pt").to(self._device)
            with torch.inference_mode():
                yield Launch(places, taken, self._model(**taken))

    def logits(self, encoded: Any) -> NDArray:
        """[n, classes]: one row of logits a text."""
        rows: NDArray | None = None
        for launch in self.launches(encoded):
            logits = launch.given.logits.float().cpu().numpy()
            if rows is None:
                rows = np.empty((len(encoded["input_ids"]), *logits.shape[1:]), np.float32)
            rows[launch.places] = logits
        return np.empty((0, 0), np.float32) if rows is None else rows

    def _bounded(self, texts: list[str]) -> list[str]:
        most = self._most_characters
        if all(len(text) <= most for text in texts):
            return texts
        return [text[-most:] if self._keeps_end else text[:most] for text in texts]


def softmax(logits: NDArray) -> NDArray:
    """Along the last axis."""
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: NDArray = shares / shares.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(logits: NDArray) -> NDArray:
    with np.errstate(over="ignore"):
        probabilities: NDArray = 1 / (1 + np.exp(-logits))
    return probabilities
