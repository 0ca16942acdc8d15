"""The findings as tables for a terminal."""

from collections.abc import Mapping
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

_MIB = 1 << 20


def show(console: Console, found: Mapping[str, Mapping[str, Any]]) -> None:
    console.print(_calls(found))
    console.print(_workers(found))
    missed = [
        f"{name} at {call['rows']} rows"
        for name, figures in found.items()
        for call in figures["calls"]
        if call["overhead_us"] > call["aim_us"]
    ]
    console.print(f"over the aim: {', '.join(missed)}" if missed else "every overhead is within the aim")


def _calls(found: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = ("rows", "hot µs", "bare µs", "call µs", "overhead µs", "aim µs", "in worker µs", "p99 µs", "CPU µs")
    table = _table("A call of a worker over its link, beside the bare framework call (medians)", *columns)
    for name, figures in found.items():
        for number, call in enumerate(figures["calls"]):
            is_last = number + 1 == len(figures["calls"])
            keys = ("hot_us", "bare_us", "call_us", "overhead_us", "aim_us", "backend_us", "call_p99_us", "cpu_us")
            style = "red" if call["overhead_us"] > call["aim_us"] else None
            cells = [f"{call['rows']}", *(f"{call[key]:,.0f}" for key in keys)]
            table.add_row("" if number else name, *cells, style=style, end_section=is_last)
    return table


def _workers(found: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = ("start s", "load s", "warm-up s", "ready s", "CPU s", "swap s", "PSS MiB", "RSS MiB")
    table = _table("What a worker costs: until it is ready, to swap, and idle", *columns)
    for name, figures in found.items():
        swap = f"{median(figures['swap_s']):.2f}" if figures.get("swap_s") else "-"
        times = (start_s(figures), figures["load_s"], figures["warm_s"], figures["ready_s"], figures["ready_cpu_s"])
        memory = (figures["pss_bytes"], figures["rss_bytes"])
        table.add_row(name, *(f"{each:.2f}" for each in times), swap, *(f"{each / _MIB:.0f}" for each in memory))
    return table


def page(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The same in short, for docs/runtime.md."""
    lines = [
        "| framework | rows | bare µs | in worker µs | call µs | overhead µs | ready s | CPU s | swap s | PSS MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, figures in found.items():
        for number, call in enumerate(figures["calls"]):
            keys = ("bare_us", "backend_us", "call_us", "overhead_us")
            own = [""] * 4
            if not number:
                swap = f"{median(figures['swap_s']):.1f}" if figures.get("swap_s") else "-"
                own = [f"{figures['ready_s']:.1f}", f"{figures['ready_cpu_s']:.1f}", swap]
                own.append(f"{figures['pss_bytes'] / _MIB:.0f}")
            cells = ["" if number else name, f"{call['rows']}", *(f"{call[key]:,.0f}" for key in keys), *own]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def start_s(figures: Mapping[str, Any]) -> float:
    """Seconds of a worker's own start: Python and what every worker imports."""
    return max(0.0, float(figures["ready_s"] - figures["load_s"] - figures["warm_s"]))


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("framework", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table
