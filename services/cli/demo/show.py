"""Prints what the played requests came to."""

from collections.abc import Sequence

from rich.table import Table

from services.cli.demo.rounds import Played
from services.cli.demo.tables import StageRow, VersionRow, by_version, failures, samples, stages
from services.cli.output import say, show, table

_FRAMEWORKS = {"digits/1": "scikit-learn", "digits/2": "XGBoost", "digits/3": "ONNX", "tumor/1": "scikit-learn"}


def show_played(played: Sequence[Played]) -> None:
    """Predictions beside the truth, versions, failures, stages."""
    rows = [row for model in ("digits", "tumor", "ranker") for row in samples(played, model)]
    show(table("Held-out rows: some, and the first wrong ones", ("row", "version", "predicted", "truth", ""), rows))
    show(_versions(by_version(played)))
    show(_stages(played))
    for error, count in failures(played).items():
        say(f"failed {count} times: {error}")


def show_unknown(played: Played) -> None:
    say(f"{played.turn.name}, whom nobody knows: {played.predicted}")


def _versions(rows: Sequence[VersionRow]) -> Table:
    cells = [
        (
            f"{row.model}/{row.version}",
            _FRAMEWORKS.get(f"{row.model}/{row.version}", "ONNX"),
            row.arm,
            row.requests,
            f"{row.share:.1%}",
            f"{row.accuracy:.1%}",
        )
        for row in rows
    ]
    columns = ("version", "made with", "arm", "requests", "share", "accuracy")
    return table("Requests and accuracy by version", columns, cells, ("requests", "share", "accuracy"))


def _stages(played: Sequence[Played]) -> Table:
    models = [name for name in ("digits", "tumor", "ranker") if stages(played, name)]
    by_model = {name: {row.stage: row for row in stages(played, name)} for name in models}
    names = list(dict.fromkeys(stage for rows in by_model.values() for stage in rows))
    columns = ["stage", *(f"{name} p50/p99 share" for name in models)]
    cells = [[stage, *(_cell(by_model[name].get(stage)) for name in models)] for stage in names]
    return table("Where the time went (ms, and share of the mean total)", columns, cells, columns[1:])


def _cell(row: StageRow | None) -> str:
    return f"{_ms(row.p50_ms)}/{_ms(row.p99_ms)} {row.share:6.1%}" if row else "-"


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"
