"""Measure our batcher beside other servers' rules: tables, bench-batcher.json and plots. `make bench-batcher`.

Everything goes through a whole mesh of real processes on this machine, so figures mean something on a quiet one only.
"""

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from loadtest.batching.experiments import CURVES, Curve, quick
from loadtest.batching.session import IDLE, LONE, Findings, judge, measure, steps
from loadtest.batching.tables import show

_IDLE_S, _QUICK_IDLE_S = 30.0, 20.0
_NAMES = [*(curve.name for curve in CURVES), LONE, IDLE]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a few minutes instead of fifteen: fewer, shorter points")
    parser.add_argument("--only", nargs="*", choices=_NAMES, default=_NAMES, help="experiments; default: all")
    parser.add_argument("--rates", nargs="*", type=float, help="requests/s instead of each curve's own")
    parser.add_argument("--rules", nargs="*", help="rules instead of each curve's own: ours, single, fixed, triton, …")
    parser.add_argument("--seconds", type=float, help="of each point, instead of the curve's own")
    parser.add_argument("--output", type=Path, default=Path("bench-batcher.json"))
    parser.add_argument("--plots", type=Path, help="folder for PNG files; default: none are drawn")
    parser.add_argument("--draw-only", action="store_true", help="draw what --output holds; measure nothing")
    parser.add_argument("--check", action="store_true", help="fail when a claim does not hold or was not measured")
    return parser.parse_args()


def chosen(arguments: argparse.Namespace) -> list[Curve]:
    curves = [curve for curve in CURVES if curve.name in arguments.only]
    if arguments.quick:
        curves = [quick(curve) for curve in curves]
    if arguments.rates:
        curves = [replace(curve, rates=tuple(arguments.rates)) for curve in curves]
    if arguments.rules:
        curves = [replace(curve, rules=tuple(arguments.rules)) for curve in curves]
    if arguments.seconds:
        curves = [replace(curve, window_s=arguments.seconds) for curve in curves]
    return curves


def run(curves: Sequence[Curve], extras: Sequence[str], idle_s: float, console: Console) -> Findings:
    """Measure with a bar that says what is on."""
    columns = (TextColumn("{task.description:<42}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=steps(curves, extras))

        def step(what: str) -> None:
            begun = progress.tasks[0].description != ""
            progress.update(task, description=what, advance=int(begun))

        return asyncio.run(measure(curves, extras, idle_s, step))


def draw_plots(curves: Sequence[Curve], points: list[dict[str, Any]], folder: Path, console: Console) -> None:
    from loadtest.batching.plots import draw  # noqa: PLC0415 - matplotlib, for this only

    for path in draw(curves, points, folder):
        console.print(f"drawn: {path}")


def main() -> int:
    arguments = parse()
    console = Console(width=None if sys.stdout.isatty() else 180)
    curves, extras = chosen(arguments), [name for name in (LONE, IDLE) if name in arguments.only]
    if arguments.draw_only:
        draw_plots(curves, json.loads(arguments.output.read_text())["points"], arguments.plots, console)
        return 0
    try:
        findings = run(curves, extras, _QUICK_IDLE_S if arguments.quick else _IDLE_S, console)
    except (RuntimeError, AssertionError) as error:
        console.print("\n".join([str(error), *getattr(error, "__notes__", ())]), style="red", markup=False)
        return 1
    judge(curves, findings)
    show(console, curves, findings)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    arguments.output.write_text(json.dumps({"machine": machine, **findings.as_json()}, indent=1) + "\n")
    console.print(f"written to {arguments.output}")
    if arguments.plots:
        draw_plots(curves, findings.points, arguments.plots, console)
    return int(arguments.check and any(verdict.holds is not True for verdict in findings.verdicts))


if __name__ == "__main__":
    raise SystemExit(main())
