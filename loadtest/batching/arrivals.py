"""When requests are due: open-loop schedules. Pure; the seed is an argument, so that every rule meets the same ones."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["poisson", "bursty"]
BURSTY_CV = 4.0  # standard deviation of the gaps over their mean; 1 is Poisson's


def schedule(kind: Kind, rate: float, seconds: float, seed: int) -> NDArray[np.float64]:
    """Seconds after the start at which each of rate x seconds requests is due, ascending; the last at `seconds`.

    Scaled so that exactly the asked rate is offered: at CV 4 a sample's own mean is off by several percent.
    """
    count = max(1, round(rate * seconds))
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(size=count) if kind == "poisson" else _bursty_gaps(rng, count)
    due = np.cumsum(gaps)
    return np.asarray(due * (seconds / due[-1]))


def _bursty_gaps(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Gaps of mean 1 and CV 4: hyper-exponential of two phases with balanced means.

    Most gaps are short and a few are long, so requests come in bursts. Source: Whitt, "Approximating a point process
    by a renewal process" (1982).
    """
    square = BURSTY_CV * BURSTY_CV
    often = (1 + math.sqrt((square - 1) / (square + 1))) / 2
    is_short = rng.random(count) < often
    means = np.where(is_short, 1 / (2 * often), 1 / (2 * (1 - often)))
    return np.asarray(rng.exponential(size=count) * means)
