"""Measure what a request costs by each API: tables, bench-apis.json and a plot. `make bench-apis`."""

import argparse
import asyncio
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from loadtest import h2load
from loadtest.apis.calls import APIS
from loadtest.apis.session import measure
from loadtest.apis.tables import page, show
from loadtest.bench import WrongAnswerError
from loadtest.workloads import WORKLOADS

_APIS = [api.name for api in APIS]
_WORKLOADS = ["W1", "W2", "W3"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", choices=_WORKLOADS, default=_WORKLOADS, help="workloads; default: all")
    parser.add_argument("--apis", nargs="*", choices=_APIS, default=_APIS, metavar="API", help="default: all")
    parser.add_argument("--seconds", type=float, default=6, help="about how long each one is measured")
    parser.add_argument("--output", type=Path, default=Path("bench-apis.json"))
    parser.add_argument("--plots", type=Path, help="folder for the PNG file; default: none is drawn")
    parser.add_argument(
        "--draw-only", action="store_true", help="draw what --output holds, and print it for a page; measure nothing"
    )
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    console = Console(width=None if sys.stdout.isatty() else 180)
    if arguments.draw_only:
        found = json.loads(arguments.output.read_text())["calls"]
        print(page(found))
        _draw(found, arguments.plots, console)
        return 0
    apis = [api for api in APIS if api.name in arguments.apis]
    workloads = [workload for workload in WORKLOADS if workload.name in arguments.only]
    with console.status("") as status:
        try:
            found = asyncio.run(measure(apis, workloads, arguments.seconds, status.update))
        except (h2load.MissingError, WrongAnswerError, RuntimeError) as error:
            console.print(str(error), style="red", markup=False)
            return 1
    show(console, found)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    arguments.output.write_text(json.dumps({"machine": machine, "calls": found}, indent=1) + "\n")
    console.print(f"written to {arguments.output}")
    _draw(found, arguments.plots, console)
    return 0


def _draw(found: list[dict[str, Any]], folder: Path | None, console: Console) -> None:
    if folder is not None:
        from loadtest.apis.plots import draw  # noqa: PLC0415 - matplotlib, for this only

        console.print(f"drawn: {draw(found, folder)}")


if __name__ == "__main__":
    raise SystemExit(main())
