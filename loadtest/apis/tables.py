"""The findings as tables, on a terminal and for a page."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

# requests/s of other servers on the same work: docs/rest.md says where from.
AIMS = {
    ("W1", "V2 binary"): 16_100,
    ("W2", "V2 binary"): 12_200,
    ("W3", "V2 binary"): 1_065,
    ("W1", "V2 raw"): 35_400,
    ("W1", "V2 JSON"): 18_900,
    ("W2", "V2 JSON"): 4_500,
}
_PARTS = ("router", "batcher", "worker")
_COLUMNS = (
    "",
    "API",
    "body, bytes",
    "requests/s",
    "aim",
    "p50 ms",
    "p99 ms",
    *(f"{part} µs" for part in _PARTS),
    "sum µs",
)


def cells(row: dict[str, Any]) -> list[str]:
    aim = AIMS.get((row["workload"], row["api"]))
    cpu = row["cpu_us"]
    return [
        row["workload"],
        row["api"],
        f"{row['body_bytes']:,}",
        f"{row['requests_s']:,.0f}",
        f"{aim:,}" if aim else "",
        f"{row['p50_ms']:.2f}",
        f"{row['p99_ms']:.2f}",
        *(f"{cpu[part]:,.1f}" for part in _PARTS),
        f"{sum(cpu.values()):,.1f}",
    ]


def show(console: Console, found: Sequence[dict[str, Any]]) -> None:
    table = Table(title="CPU of one request by API and process; the generator shares these cores", title_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in found:
        table.add_row(*cells(row))
    console.print(table)


def page(found: Sequence[dict[str, Any]]) -> str:
    """The same as Markdown."""
    lines = [_COLUMNS, ("---", "---", *["---:"] * (len(_COLUMNS) - 2)), *map(cells, found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
