"""What a model of text is to do, where its checkpoint does not say it."""

from typing import Literal, Self

from pydantic import Field, model_validator

from services.core.spec import Spec

TextTask = Literal[
    "text-classification", "token-classification", "feature-extraction", "fill-mask", "zero-shot-classification"
]


class Text(Spec):
    """The task of a checkpoint (framework transformers), and what belongs to it."""

    task: TextTask | None = None  # None = as the checkpoint's architecture says
    max_tokens: int | None = Field(default=None, ge=1, le=1 << 20)  # longer texts are cut; None = what the model takes
    pair: bool = False  # text-classification: a second text a row, input `pair`
    pooling: Literal["mean", "cls", "max", "last"] | None = None  # of feature-extraction; None = as it says
    top_k: int = Field(default=5, ge=1, le=1000)  # tokens that fill-mask gives
    labels: tuple[str, ...] = ()  # of zero-shot-classification; () = each row brings its own, input `labels`
    hypothesis: str = "This example is {}."  # zero-shot-classification: {} stands for a label
    multi_label: bool = False  # zero-shot-classification: each label is judged by itself

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.task not in (None, "zero-shot-classification") and (self.labels or self.multi_label):
            raise ValueError(f"text: labels and multi_label are of zero-shot-classification, the task is {self.task}")
        if self.task not in (None, "text-classification") and self.pair:
            raise ValueError(f"text: pair is of text-classification, the task is {self.task}")
        if self.task not in (None, "feature-extraction") and self.pooling:
            raise ValueError(f"text: pooling is of feature-extraction, the task is {self.task}")
        if self.hypothesis.count("{}") != 1:
            raise ValueError("text: hypothesis needs one {}, where the label stands")
        if len(set(self.labels)) < len(self.labels) or "" in self.labels:
            raise ValueError("text: labels are not empty, and each is there once")
        return self
