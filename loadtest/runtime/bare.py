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

_PAUSE_S = 1e-4  # about what a worker waits between two calls that come one after the other


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
    """Nanoseconds of each call with a pause before it, and processor time in all; and of calls without a pause."""
    hot, _ = _calls(call, inputs, seconds / 2, pause_s=0)
    times, cpu_ns = _calls(call, inputs, seconds / 2, _PAUSE_S)
    return {"ns": times, "cpu_ns": cpu_ns, "hot_ns": hot}


def _calls(call: Call, inputs: Inputs, seconds: float, pause_s: float) -> tuple[list[int], int]:
    call(inputs)
    times: list[int] = []
    began, used = time.perf_counter(), time.process_time_ns()
    while not times or time.perf_counter() - began < seconds:
        if pause_s:
            time.sleep(pause_s)
        at = time.perf_counter_ns()
        call(inputs)
        times.append(time.perf_counter_ns() - at)
    return times, time.process_time_ns() - used


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), os.getppid())
