"""The findings as a PNG file: overhead, the time until ready, and memory, for each framework."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from loadtest.runtime.tables import start_s

Found = Mapping[str, Mapping[str, Any]]
_SHARPNESS_DPI = 130
# Colours that are told apart with any eyes (Okabe and Ito).
_COLOURS = ("#0072B2", "#56B4E9", "#E69F00", "#009E73")
_AIM = "#D55E00"
_MIB = 1 << 20


def draw(found: Found, folder: Path) -> Path:
    """The file."""
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(14.5, 1.3 + 0.62 * len(found)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    _overhead(panels[0], found)
    _ready(panels[1], found)
    _memory(panels[2], found)
    for axes in panels:
        axes.grid(axis="x", color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.legend(
            fontsize=8,
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(0, -0.4 / len(found)),
            ncols=4,
            handlelength=1.2,
            columnspacing=1.2,
        )
    panels[0].set_yticks(range(len(found)), list(found), fontsize=9)
    panels[0].invert_yaxis()
    path = folder / "runtime.png"
    figure.savefig(path, dpi=_SHARPNESS_DPI)
    return path


def _overhead(axes: Axes, found: Found) -> None:
    counts: Sequence[int] = sorted({call["rows"] for figures in found.values() for call in figures["calls"]})
    height = 0.8 / len(counts)
    for number, rows in enumerate(counts):
        at = [place - 0.4 + height * (number + 0.5) for place in range(len(found))]
        calls = [next(call for call in figures["calls"] if call["rows"] == rows) for figures in found.values()]
        colour = _COLOURS[number % len(_COLOURS)]
        label = f"{rows} row" + ("s" if rows > 1 else "")
        axes.barh(at, [max(10.0, call["overhead_us"]) for call in calls], height * 0.9, color=colour, label=label)
        aims = [call["aim_us"] for call in calls]
        kind = {"label": "aim: 150 µs and 10%"} if not number else {}
        axes.scatter(aims, at, marker="|", s=70, color=_AIM, zorder=3, **kind)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_title("overhead of a call over the bare call, µs", fontsize=10, loc="left")


def _ready(axes: Axes, found: Found) -> None:
    left = [0.0] * len(found)
    for number, (label, part) in enumerate(
        (
            ("Python, the worker", start_s),
            ("framework, model", lambda figures: figures["load_s"]),
            ("proof, warm-up", lambda figures: figures["warm_s"]),
        )
    ):
        widths = [float(part(figures)) for figures in found.values()]
        axes.barh(range(len(found)), widths, 0.6, left, color=_COLOURS[number], label=label)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    axes.set_title("from start to READY, s", fontsize=10, loc="left")


def _memory(axes: Axes, found: Found) -> None:
    for name, key, height, colour in (
        ("resident", "rss_bytes", 0.6, "0.8"),
        ("its part", "pss_bytes", 0.36, _COLOURS[3]),
    ):
        widths = [figures[key] / _MIB for figures in found.values()]
        axes.barh(range(len(found)), widths, height, color=colour, label=name)
    axes.set_title("memory of an idle instance, MiB", fontsize=10, loc="left")
