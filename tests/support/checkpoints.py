"""Checkpoints of Hugging Face Transformers, small and of no sense, made here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertTokenizer

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "text", "of", "ada", "in", "paris", "which", "is"),
    *("longer", "than", "first", "another", "good", "bad", "##s", "##ly", "."),
]
MOODS = ("bad", "so so", "good")
INFERENCE = ("contradiction", "neutral", "entailment")
PARTS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
MAX_TOKENS = 32


def save(kind: Any, folder: Path, labels: Sequence[str] = (), **config: Any) -> Path:
    """A checkpoint of a small Bert model of class `kind` with made-up weights, and its tokenizer; its config.json."""
    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    names = dict(enumerate(labels))
    if labels:
        config |= {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    torch.manual_seed(7)
    model = kind(
        BertConfig(
            vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=MAX_TOKENS, initializer_range=0.5, **config,
        )
    )  # fmt: skip
    model.save_pretrained(folder)
    BertTokenizer(str(vocabulary)).save_pretrained(folder)
    return folder / "config.json"
