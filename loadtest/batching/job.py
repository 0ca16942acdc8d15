"""What the generator is asked for and what it tells: both travel as lines of JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Self

from loadtest.batching.arrivals import Kind


@dataclass(frozen=True, slots=True)
class Job:
    """One run of requests at one model. `rate` 0 = a closed loop: one request at a time, the next after its answer."""

    address: str
    model: str
    rate: float = 0  # requests/s
    arrivals: Kind = "poisson"
    warm_s: float = 0.5  # before what is counted
    window_s: float = 2.0  # whose requests are counted
    deadline_ms: float = 100
    rows: int = 1
    widths: tuple[int, ...] = (32,)  # elements of a row; several: request after request in turn
    repository: str = ""  # of the model that answers are compared with; "" = they are the inputs
    seed: int = 1
    timings: bool = False  # ask for the stages of each request

    def line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def parse(cls, line: str) -> Self:
        values = json.loads(line)
        return cls(**{**values, "widths": tuple(values["widths"])})
