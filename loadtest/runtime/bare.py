"""A process that makes a model and calls it through its framework alone: `python -m loadtest.runtime.bare NAME FOLDER`.

It writes the artifact's path, then answers each line "ROWS SECONDS" with the nanoseconds of each call, as JSON.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from loadtest.runtime.cases import CASES, Call, Inputs
from services.chassis.process import die_with_parent, keep_freed_memory


def main(name: str, folder: Path, parent: int) -> None:
    die_with_parent(parent)
    keep_freed_memory()  # as a worker does
    answers, sys.stdout = sys.stdout, sys.stderr  # what frameworks print is no answer
    case = next(case for case in CASES if case.framework == name)
    file = case.make(folder)
    _say(answers, str(file))
    call = case.bare(file)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        rows, seconds = line.split()
        _say(answers, measure(call, case.inputs(int(rows)), float(seconds)))


def _say(stream: Any, value: Any) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()


def measure(call: Call, inputs: Inputs, seconds: float) -> dict[str, Any]:
    """Nanoseconds of each call, and processor time in all."""
    call(inputs)
    times: list[int] = []
    began, used = time.perf_counter(), time.process_time_ns()
    while time.perf_counter() - began < seconds:
        at = time.perf_counter_ns()
        call(inputs)
        times.append(time.perf_counter_ns() - at)
    return {"ns": times, "cpu_ns": time.process_time_ns() - used}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), os.getppid())
