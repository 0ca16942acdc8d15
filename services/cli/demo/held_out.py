"""The rows that no model saw in training, and what is right for them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What `turnout play` sends. Patients are named by their number, their 30 features lie in the feature store."""

    digits: NDArray[np.float32]  # [n, 64]
    digit_labels: NDArray[np.int64]  # [n]
    patients: NDArray[np.int64]  # [m]
    patient_labels: NDArray[np.int64]  # [m]; 1 = benign
    candidates: NDArray[np.float32]  # [k, 32]
    scores: NDArray[np.float32]  # [k]: what the ranker must answer

    def save(self, path: Path) -> None:
        np.savez_compressed(path, **{name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def load(cls, path: Path) -> "HeldOut":
        """Raises OSError, ValueError or KeyError when `path` is not what `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(**{name: arrays[name] for name in cls.__slots__})
