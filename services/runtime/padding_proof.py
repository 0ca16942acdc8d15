"""Whether a model's answers stay as they are when rows are filled up: tried before `pad_to` is believed."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from services.core.batching_spec import Padding
from services.core.padding import check_padding
from services.core.signature import Signature
from services.runtime.backends import Run
from services.runtime.synthetic import number, synthetic_inputs, told
from services.runtime.warm_up import alike

_USUAL_LENGTH = 4  # that is filled up to where `pad_to` names none


class PaddingProof:
    """One row, alone and filled up."""

    def __init__(self, padding: Padding, signature: Signature, free: int) -> None:
        """Raises BadPaddingError unless `padding` fits. Free dimensions behind the length have size `free`."""
        check_padding(padding, signature)
        self._padding = padding
        self._signature = signature
        self._free = free
        self.padded = next((size for size in padding.sizes if size > 1), 0 if padding.sizes else _USUAL_LENGTH)
        self.length = self.padded // 2

    def fault(self, run: Run) -> str:
        """How filling up changes what the model gives; empty = not at all. Raises what the model raises."""
        if not self.length:  # nothing is ever filled up
            return ""
        alone, beside = run(self._row(self.length)), run(self._row(self.padded))
        return next(filter(None, [self._compare(name, alone[name], beside[name]) for name in alone]), "")

    def _row(self, padded: int) -> Mapping[str, NDArray]:
        inputs = synthetic_inputs(self._signature, 1, 1, self._free)
        for spec in self._signature.inputs:
            if spec.name in self._padding.inputs:
                ones = inputs[spec.name]
                filled = np.full(
                    (1, padded, *ones.shape[2:]), number(spec, self._padding.inputs[spec.name]), ones.dtype
                )
                filled[:, : self.length] = 1
                inputs[spec.name] = filled
        return inputs | told(self._padding, self._signature, 1, self.length, padded)

    def _compare(self, name: str, alone: NDArray, beside: NDArray) -> str:
        row = f"a row of length {self.length} filled up to {self.padded}"
        if name in self._padding.outputs:
            if beside.shape[1:2] != (self.padded,):
                return f"output {name!r} has shape {list(beside.shape)} for {row}: it cannot be cut back"
            beside = beside[:, : self.length]
        elif beside.shape != alone.shape:
            return (
                f"output {name!r} has shape {list(beside.shape)} for {row}, and {list(alone.shape)} without:"
                " pad_to.outputs names what is to be cut back"
            )
        return "" if alike(alone, beside) else f"output {name!r} differs between {row} and the same row as it is"
