"""The findings as a PNG file: CPU of one request by API, cut up by process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

# Colours that are told apart with any eyes (Okabe and Ito).
_COLOURS = {"router": "#0072B2", "batcher": "#56B4E9", "worker": "#E69F00"}
_SHARPNESS_DPI = 130
_MOST = 8  # times the shortest bar


def draw(found: Sequence[dict[str, Any]], folder: Path) -> Path:
    """The file."""
    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    workloads = list(dict.fromkeys(row["workload"] for row in found))
    figure = Figure(figsize=(5 * len(workloads), 3), layout="constrained")
    panels = figure.subplots(1, len(workloads), squeeze=False)[0]
    for axes, workload in zip(panels, workloads, strict=True):
        rows = [row for row in found if row["workload"] == workload]
        left = [0.0] * len(rows)
        for part, colour in _COLOURS.items():
            widths = [row["cpu_us"][part] for row in rows]
            axes.barh(range(len(rows)), widths, 0.6, left, color=colour, label=part)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        edge = min(max(left), _MOST * min(left))  # beyond it a bar is cut off, and says how long it is
        for place, (end, row) in enumerate(zip(left, rows, strict=True)):
            beyond = f" → {end:,.0f} µs," if end > edge else ""
            axes.text(min(end, edge), place, f"{beyond} {row['requests_s']:,.0f}/s", va="center", fontsize=8, zorder=3)
        axes.set_xlim(0, edge * 1.4)
        axes.axvspan(edge, edge * 1.4, color="white", zorder=1.5)
        axes.set_yticks(range(len(rows)), [row["api"] for row in rows], fontsize=9)
        axes.invert_yaxis()
        axes.grid(axis="x", color="0.9", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        axes.set_title(f"{workload}: CPU of one request, µs", fontsize=10, loc="left")
    panels[0].legend(fontsize=8, frameon=False, loc="lower right")
    path = folder / "apis.png"
    figure.savefig(path, dpi=_SHARPNESS_DPI)
    return path
