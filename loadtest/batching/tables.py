"""The findings as tables for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtest.batching.experiments import LABELS, Curve
from loadtest.batching.session import Findings
from loadtest.batching.verdicts import MOST_LAG_MS, Verdict, kept

_COLUMNS = ("rows/launch", "in time/s", "p50 ms", "p95 ms", "p99 ms", "refused", "p99 ms", "late", "CPU µs", "lag ms")


def show(console: Console, curves: Sequence[Curve], findings: Findings) -> None:
    for curve in curves:
        for kind in curve.kinds:
            points = [p for p in findings.points if (p["curve"], p["kind"]) == (curve.name, kind)]
            if points:
                console.print(_curve(curve, kind, points))
    if findings.lone:
        console.print(_lone(findings.lone))
    if findings.idle:
        console.print(_idle(findings.idle))
    console.print(_verdicts(findings.verdicts))
    bad = [point for point in findings.points if not kept(point)]
    if bad:
        text = f"{len(bad)} of {len(findings.points)} points do not count (marked *): the generator was later than "
        console.print(
            f"{text}{MOST_LAG_MS:g} ms for 1 request in 100, or an answer was wrong or an error", style="yellow"
        )


def _curve(curve: Curve, kind: str, points: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(f"{curve.title}; {kind} arrivals, deadline {curve.deadline_ms:g} ms", "offered/s", "", *_COLUMNS)
    for number, point in enumerate(points):
        is_last = number + 1 == len(points) or points[number + 1]["rate"] != point["rate"]
        table.add_row(*_row(point), style=None if kept(point) else "dim", end_section=is_last)
    return table


def _row(point: Mapping[str, Any]) -> list[str]:
    ms, refused, counts = point["ms"], point["refused_ms"], point["counts"]
    total = max(1, sum(counts.values()))
    return [
        f"{point['offered_s']:,.0f}",
        LABELS[point["rule"]] + ("" if kept(point) else " *"),
        f"{point['batch_rows']:.1f}",
        f"{point['good_s']:,.0f}",
        *(f"{ms[name]:.2f}" if ms else "-" for name in ("p50", "p95", "p99")),
        f"{counts.get('refused', 0) / total:.1%}",
        f"{refused['p99']:.2f}" if refused else "-",
        f"{counts.get('late', 0) / total:.1%}",
        f"{sum(us for part, us in point['cpu_us'].items() if part != 'generator'):.0f}",
        f"{point['lag_ms'].get('p99', 0):.2f}",
    ]


def _lone(points: Mapping[str, Mapping[str, Any]]) -> Table:
    table = _table(
        "One caller alone, one request after the other", "model", "requests/s", "p50 ms", "queue p50 ms", "max"
    )
    for model, point in points.items():
        queue = point["queue_ms"]
        figures = [f"{point['ok_s']:,.0f}", f"{point['ms']['p50']:.2f}", f"{queue['p50']:.3f}", f"{queue['max']:.3f}"]
        table.add_row(model, *figures)
    return table


def _idle(parts: Mapping[str, Mapping[str, float]]) -> Table:
    table = _table("Nobody calls", "process", "% of a core", "wakes/s")
    for name, use in parts.items():
        table.add_row(name, f"{use['cpu_percent']:.3f}", f"{use['wakes_s']:.1f}")
    return table


def _verdicts(verdicts: Sequence[Verdict]) -> Table:
    table = Table(title="What is claimed, and what was found", title_justify="left")
    for name in ("", "claim", "found"):
        table.add_column(name, overflow="fold")
    words = {True: ("holds", "green"), False: ("MISSED", "red"), None: ("-", "yellow")}
    for verdict in verdicts:
        word, style = words[verdict.holds]
        table.add_row(word, verdict.claim, verdict.found, style=style)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if column in {"", "process", "model"} else "right", no_wrap=number != 1)
    return table
