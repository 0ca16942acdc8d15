"""Names of outputs and class labels: the same for every framework, so that versions of one model can be compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import NUMPY_DTYPE
from services.core.signature import TensorSpec
from services.core.tensor import BYTES

LABEL, PROBABILITIES, VALUE = "label", "probabilities", "y"
MARGIN, LEAF, CONTRIBUTIONS = "margin", "leaf", "contributions"  # of boosted trees, when asked for


def label_spec(classes: NDArray[Any]) -> TensorSpec:
    """The output `label`: INT64 for classes that are integers, FP64 for other numbers, BYTES for text."""
    datatype = "INT64" if classes.dtype.kind in "iub" else "FP64" if classes.dtype.kind == "f" else BYTES
    return TensorSpec(LABEL, datatype, (-1,))


def as_labels(predicted: NDArray[Any]) -> NDArray[Any]:
    """What a classifier predicted, in the datatype of `label_spec`."""
    if predicted.dtype.kind in "iub":
        return predicted.astype(np.int64)
    return predicted.astype(np.float64 if predicted.dtype.kind == "f" else object)


def no_rows(specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """The answer to a batch of no rows, for frameworks that refuse such or get its shape wrong."""
    return {
        name: np.empty((0, *(max(size, 0) for size in shape[1:])), NUMPY_DTYPE.get(datatype, np.dtype(object)))
        for name, datatype, shape in specs
    }
