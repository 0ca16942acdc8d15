"""Models that misbehave, for pickles that the runtime's tests make."""

import os
import time

import numpy as np

RAISE, ABORT, LOOP, PRINT, GROW, WRONG_ROWS, QUIT, SLEEP = 101, 102, 103, 104, 105, 106, 107, 108


class Mischief:
    """predict gives each row's sum; a batch whose first value is one of the numbers above does what it says."""

    def __init__(self, features: int = 2, factor: float = 1) -> None:
        self.n_features_in_ = features
        self.factor = factor

    def predict(self, x: np.ndarray) -> np.ndarray:  # noqa: C901 - a table
        match int(x[0, 0]):
            case 101:
                raise ValueError(f"no such thing in /opt/models/secret.bin: {x[0, 0]}")
            case 102:
                os.abort()
            case 103:
                while True:
                    pass
            case 104:
                for _ in range(200):
                    os.write(1, b"x" * 1_000_000 + b"\n")
            case 105:
                self.hoard = np.ones(512 << 20, np.uint8)
            case 106:
                return np.zeros(len(x) + 1)
            case 107:
                raise SystemExit(3)
            case 108:
                time.sleep(1)
        return x.sum(axis=1) * self.factor


class Centred:
    """Rows depend on each other: it takes the batch's mean away."""

    n_features_in_ = 2

    def predict(self, x: np.ndarray) -> np.ndarray:
        return (x - x.mean(axis=0)).sum(axis=1)


class AbortsOnLoad:
    """Its process dies while it is loaded."""

    def __reduce__(self) -> tuple:
        return os.abort, ()


class LoadsForEver:
    """Its process sleeps while it is loaded."""

    def __reduce__(self) -> tuple:
        return time.sleep, (600,)
