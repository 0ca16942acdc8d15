"""What of torch needs a GPU: the choice of one, and CUDA graphs by number of rows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch.utils import _pytree as pytree

from services.runtime.backends import BadArtifactError, Device

_MOST = 64  # graphs of one model: each holds memory of its own
_WARM_RUNS = 3  # before a capture, as torch asks


def chosen_device(wanted: Device) -> str:
    """Raises BadArtifactError where a GPU is asked for and torch can use none."""
    if wanted == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if wanted == "auto":
        return "cpu"
    build = "is built without CUDA" if torch.version.cuda is None else "finds none that it can use"
    raise BadArtifactError(f"a GPU is asked for, and torch {torch.__version__} {build}")


class _Captured(NamedTuple):
    graph: Any
    inputs: list[torch.Tensor]
    answer: Any  # in memory that the next replay writes to


class Graphs:
    """Calls a model through CUDA graphs: a batch takes the smallest that holds its rows, filled up with zeros."""

    def __init__(self, call: Callable[..., Any], sizes: Sequence[int]) -> None:
        self._call = call
        self._sizes = sorted(sizes)
        self._captured: dict[tuple[Any, ...], _Captured] = {}

    @classmethod
    def of(cls, artifact: Path, call: Callable[..., Any], sizes: Sequence[int], device: str, *, batches: bool) -> Self:
        """Raises BadArtifactError where there is no GPU, or nothing counts rows."""
        if device == "cpu":
            raise BadArtifactError(
                f"{artifact.name}: cuda_graphs are asked for in the model's spec, and it runs on the processor: they"
                " need a GPU"
            )
        if not batches:
            raise BadArtifactError(f"{artifact.name}: cuda_graphs are by number of rows, and this model has no rows")
        return cls(call, sizes)

    def __call__(self, *values: torch.Tensor) -> Any:
        rows = values[0].shape[0]
        size = next((size for size in self._sizes if size >= rows), None)
        if size is None or not rows:
            return self._call(*values)
        key = (size, *((value.dtype, value.shape[1:]) for value in values))
        captured = self._captured.get(key)
        if captured is None:
            if len(self._captured) >= _MOST:
                return self._call(*values)
            captured = self._captured[key] = self._capture(size, values)
        for own, value in zip(captured.inputs, values, strict=True):
            own[:rows].copy_(value)
            own[rows:].zero_()
        captured.graph.replay()
        return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[:rows], captured.answer)

    def _capture(self, size: int, values: Sequence[torch.Tensor]) -> _Captured:
        inputs = [torch.zeros((size, *value.shape[1:]), dtype=value.dtype, device=value.device) for value in values]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_RUNS):
                self._call(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = self._call(*inputs)
        return _Captured(graph, inputs, answer)
