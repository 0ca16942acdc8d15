"""Measure what workers cost: tables, bench-runtime.json and a plot. `make bench-runtime`.

Calls go through real worker processes over their links, one at a time, as a batcher sends them.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from loadtest.runtime.cases import CASES
from loadtest.runtime.session import QUICK, Plan, measure
from loadtest.runtime.tables import page, show

_NAMES = [case.framework for case in CASES]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--only", nargs="*", choices=_NAMES, default=_NAMES, help="frameworks; default: all installed")
    parser.add_argument("--no-swaps", action="store_true", help="measure no swaps: they need etcd and a whole runtime")
    parser.add_argument("--output", type=Path, default=Path("bench-runtime.json"))
    parser.add_argument("--plots", type=Path, help="folder for the PNG file; default: none is drawn")
    parser.add_argument(
        "--draw-only", action="store_true", help="draw what --output holds, and print it for a page; measure nothing"
    )
    parser.add_argument("--check", action="store_true", help="fail when an overhead is over the aim")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if arguments.draw_only:
        found = json.loads(arguments.output.read_text())["frameworks"]
        print(page(found))
        _draw(found, arguments.plots, console)
        return 0
    plan = QUICK if arguments.quick else Plan()
    if arguments.no_swaps:
        plan = replace(plan, swaps=0)
    cases = [case for case in CASES if case.framework in arguments.only and case.is_installed]
    with tempfile.TemporaryDirectory(prefix="turnout-bench-") as folder, console.status("") as status:
        try:
            found = uvloop.run(measure(cases, plan, Path(folder), status.update))
        except (RuntimeError, AssertionError, asyncio.CancelledError) as error:
            console.print(str(error), style="red", markup=False)
            return 1
    show(console, found)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    arguments.output.write_text(json.dumps({"machine": machine, "frameworks": found}, indent=1) + "\n")
    console.print(f"written to {arguments.output}")
    if arguments.plots:
        _draw(found, arguments.plots, console)
    is_over = any(call["overhead_us"] > call["aim_us"] for figures in found.values() for call in figures["calls"])
    return int(arguments.check and is_over)


def _draw(found: dict[str, Any], folder: Path, console: Console) -> None:
    from loadtest.runtime.plots import draw  # noqa: PLC0415 - matplotlib, for this only

    console.print(f"drawn: {draw(found, folder)}")


if __name__ == "__main__":
    raise SystemExit(main())
