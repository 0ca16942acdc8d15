"""The findings as PNG files: ours beside the other rules, over the offered load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from loadtest.batching.bed import OURS
from loadtest.batching.experiments import FIXED, LABELS, SINGLE, TRITON, TRITON_5MS, TRITON_ONE, Curve
from loadtest.batching.outcome import PROMPT_MS
from loadtest.batching.verdicts import kept

Point = Mapping[str, Any]
Points = Sequence[Point]

_SHARPNESS_DPI = 130
_FEWEST = 50
_MOST_TICKS = 7
_LABEL_GAP = 0.062  # of the height of a plot, between two labels


@dataclass(frozen=True, slots=True)
class Look:
    """Colours that are told apart with any eyes (Okabe and Ito), and shapes for print."""

    colour: str
    marker: str
    dashes: str | tuple[int, tuple[float, ...]] = "-"


LOOKS = {
    OURS: Look("#D55E00", "o"),
    SINGLE: Look("#000000", "x", ":"),
    FIXED: Look("#0072B2", "s", "--"),
    TRITON: Look("#009E73", "^", "-."),
    TRITON_5MS: Look("#56B4E9", "v", (0, (5, 1))),
    TRITON_ONE: Look("#CC79A7", "D", (0, (3, 1, 1, 1))),
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: a figure of each point over the offered load."""

    title: str
    value: Callable[[Point], float | None]
    is_log: bool = False
    limit: Callable[[Curve], tuple[float, str] | None] = lambda _: None  # a level worth a line, and its name


def _latency(name: str) -> Callable[[Point], float | None]:
    """Of the answered, where they are enough for a percentile to mean something."""
    return lambda point: point["ms"].get(name) if point["counts"].get("ok", 0) >= _FEWEST else None


def _refusal(point: Point) -> float | None:
    value: float | None = point["refused_ms"].get("p99")
    return value


def _deadline(curve: Curve) -> tuple[float, str]:
    return curve.deadline_ms, "deadline"


_GOOD = Panel("answered in time, requests/s", lambda point: float(point["good_s"]))
_LOAD = (
    _GOOD,
    Panel("median latency, ms", _latency("p50"), is_log=True),
    Panel("p99 latency, ms", _latency("p99"), is_log=True, limit=_deadline),
)
_OVERLOAD = (
    Panel("goodput: answered in time, requests/s", _GOOD.value),
    Panel("p99 latency of the answered, ms", _latency("p99"), limit=_deadline),
    Panel("p99 time to a refusal, ms", _refusal, limit=lambda _: (PROMPT_MS, "prompt")),
)


def draw(curves: Sequence[Curve], points: Points, folder: Path) -> list[Path]:
    """One PNG a curve; the files."""
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for curve in curves:
        own = [point for point in points if point["curve"] == curve.name]
        if own:
            path = folder / f"batching-{curve.name}.png"
            _figure(curve, own).savefig(path, dpi=_SHARPNESS_DPI)
            paths.append(path)
    return paths


def _figure(curve: Curve, points: Points) -> Figure:
    panels = _OVERLOAD if curve.sustained_s else _LOAD
    kinds = [kind for kind in curve.kinds if any(point["kind"] == kind for point in points)]
    figure = Figure(figsize=(14.5, 0.6 + 3.9 * len(kinds)), layout="constrained")
    figure.suptitle(curve.title, fontsize=13, fontweight="bold", x=0.01, ha="left")
    grid = figure.subplots(len(kinds), len(panels), squeeze=False)
    for row, kind in zip(grid, kinds, strict=True):
        for axes, panel in zip(row, panels, strict=True):
            _panel(axes, curve, panel, [point for point in points if point["kind"] == kind])
            axes.set_title(f"{panel.title}; {_arrivals(kind)}", fontsize=10, loc="left")
    return figure


def _arrivals(kind: str) -> str:
    return "Poisson arrivals" if kind == "poisson" else "bursty arrivals (CV 4)"


def _panel(axes: Axes, curve: Curve, panel: Panel, points: Points) -> None:
    rates = sorted({float(point["rate"]) for point in points})
    ends: list[tuple[float, float, str]] = []
    for rule in curve.rules:
        shown = [
            (float(p["rate"]), v, kept(p)) for p in points if p["rule"] == rule and (v := panel.value(p)) is not None
        ]
        if not shown:
            continue
        look = LOOKS[rule]
        x, y = [each[0] for each in shown], [each[1] for each in shown]
        axes.plot(x, y, color=look.colour, linestyle=look.dashes, linewidth=2.6 if rule == OURS else 1.4)
        for at_x, at_y, counts in shown:
            face = look.colour if counts else "white"
            style = {"color": look.colour} if look.marker == "x" else {"facecolor": face, "edgecolor": look.colour}
            axes.scatter([at_x], [at_y], marker=look.marker, s=28, zorder=3, **style)
        ends.append((x[-1], y[-1], rule))
    axes.set_xscale("log")
    axes.set_xlim(rates[0] / 1.12, rates[-1] * 1.12)
    if panel.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    _tell_limit(axes, panel.limit(curve))
    _label_axes(axes, curve, rates, is_log=panel.is_log)
    _label_lines(axes, ends)


def _tell_limit(axes: Axes, limit: tuple[float, str] | None) -> None:
    if limit is not None:
        axes.axhline(limit[0], color="0.45", linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate(
            f"{limit[1]} {limit[0]:g} ms",
            (0.01, limit[0]),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            fontsize=8,
            color="0.35",
        )


def _label_axes(axes: Axes, curve: Curve, rates: Sequence[float], *, is_log: bool) -> None:
    step = -(-len(rates) // _MOST_TICKS)
    axes.set_xticks(rates[::-step][::-1])
    axes.xaxis.set_minor_formatter(NullFormatter())
    if curve.sustained_s:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate / curve.sustained_s:g}x"))
        axes.set_xlabel(f"offered load, multiples of {curve.sustained_s:,.0f} requests/s", fontsize=9)
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.0f}"))
        axes.set_xlabel("offered load, requests/s", fontsize=9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if is_log else f"{value:,.0f}"))
    axes.tick_params(labelsize=8)
    axes.grid(which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _label_lines(axes: Axes, ends: Sequence[tuple[float, float, str]]) -> None:
    """Each line's name at its right end; names that would meet are moved apart."""
    axes.figure.canvas.draw_idle()
    to_share = axes.transAxes.inverted()
    placed = -1.0
    shares = [(to_share.transform(axes.transData.transform((x, y)))[1], x, y, rule) for x, y, rule in ends]
    room = 1 + _LABEL_GAP - _LABEL_GAP * len(shares)
    for number, (share, x, y, rule) in enumerate(sorted(shares, key=lambda each: each[0])):
        placed = max(placed + _LABEL_GAP, min(share, room + _LABEL_GAP * number))
        axes.annotate(
            LABELS[rule],
            (x, y),
            xytext=(1.025, placed),
            textcoords="axes fraction",
            va="center",
            fontsize=8.5,
            fontweight="bold" if rule == OURS else "normal",
            color=LOOKS[rule].colour,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": LOOKS[rule].colour, "linewidth": 0.5, "alpha": 0.6},
        )
