"""Models of text from checkpoints of Hugging Face Transformers: classification, entities, embeddings, masks.

What each task takes and gives: docs/frameworks.md.
"""

from collections.abc import Iterator
from pathlib import Path

from numpy.typing import NDArray

from services.core.signature import Signature
from services.runtime.backends import Arrays, BadArtifactError, Options
from services.runtime.backends.labels import no_rows
from services.runtime.backends.transformers_checkpoint import Checkpoint, read
from services.runtime.backends.transformers_classes import Classes, Entities
from services.runtime.backends.transformers_sentences import Embeddings
from services.runtime.backends.transformers_task import Task
from services.runtime.backends.transformers_tokens import Masks, ZeroShot
from services.runtime.faults import describe

_TASKS: dict[str, type[Task]] = {
    "text-classification": Classes,
    "token-classification": Entities,
    "feature-extraction": Embeddings,
    "fill-mask": Masks,
    "zero-shot-classification": ZeroShot,
}
_OF_TASK = {
    "pair": "text-classification",
    "pooling": "feature-extraction",
    "labels": "zero-shot-classification",
    "multi_label": "zero-shot-classification",
}


class Model:
    """One checkpoint and its task."""

    def __init__(self) -> None:
        self._task: Task

    def load(self, artifact: Path, options: Options) -> Signature:
        checkpoint = read(artifact, options)
        _refuse_of_others(checkpoint)
        try:
            self._task = _TASKS[checkpoint.task](checkpoint, options.outputs)
            self._task.run(self._task.example())
        except BadArtifactError:
            raise
        except Exception as error:
            raise BadArtifactError(
                f"{artifact.name}: expected a model that runs {checkpoint.task} on texts; it raised {describe(error)}"
            ) from error
        return Signature(
            self._task.inputs, self._task.outputs, batches=True, platform="transformers", on_request=options.outputs
        )

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        if not len(next(iter(inputs.values()))):
            return no_rows(self._task.outputs)
        return self._task.run(inputs)

    def examples(self) -> Iterator[Arrays]:
        yield self._task.example()

    def unload(self) -> None:
        del self._task


def _refuse_of_others(checkpoint: Checkpoint) -> None:
    for field, task in _OF_TASK.items():
        if getattr(checkpoint.text, field) and checkpoint.task != task:
            raise BadArtifactError(f"text.{field} in the model's spec is of {task}; this is {checkpoint.task}")
