"""What the played requests came to, as tables; pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from services.cli.demo.rounds import Played, in_words
from services.core.stages import STAGES, TOTAL

_SAMPLES = 3
_CLASSES = {"tumor": {"0": "malignant", "1": "benign"}}


class VersionRow(NamedTuple):
    """What one version of a model did."""

    model: str
    version: str
    arm: str
    requests: int
    share: float  # of the model's answered requests
    right: int

    @property
    def accuracy(self) -> float:
        return self.right / self.requests


class StageRow(NamedTuple):
    """One stage over a model's requests, in milliseconds; `share` of the mean total."""

    stage: str
    p50_ms: float
    p99_ms: float
    share: float


def samples(played: Sequence[Played], model: str) -> list[Sequence[str]]:
    """Rows (what, version, predicted, truth, verdict): one of each version, some more, and up to two wrong ones."""
    of_model = [each for each in played if each.turn.ask.model == model]
    first = {each.answer.version: each for each in reversed(of_model) if each.answer}
    some = of_model[:: max(1, len(of_model) // _SAMPLES)]
    wrong = [each for each in of_model if not each.is_right][:2]
    chosen = {id(each): each for each in [*(first[version] for version in sorted(first)), *some[:_SAMPLES], *wrong]}
    return [
        (
            each.turn.name,
            each.answer.version if each.answer else "-",
            *words(each),
            "right" if each.is_right else "WRONG",
        )
        for each in chosen.values()
    ]


def words(each: Played) -> tuple[str, str]:
    """What was predicted and what is true, in words."""
    if each.turn.expected is None:
        return each.predicted, in_words(each.turn.scores)
    names = _CLASSES.get(each.turn.ask.model, {})
    return names.get(each.predicted, each.predicted), names.get(str(each.turn.expected), str(each.turn.expected))


def by_version(played: Sequence[Played]) -> list[VersionRow]:
    """A row for each model, version and arm that answered."""
    groups: dict[tuple[str, str, str], list[Played]] = defaultdict(list)
    totals: dict[str, int] = defaultdict(int)
    for each in played:
        if each.answer:
            groups[each.turn.ask.model, each.answer.version, each.answer.arm].append(each)
            totals[each.turn.ask.model] += 1
    return [
        VersionRow(model, version, arm, len(some), len(some) / totals[model], sum(each.is_right for each in some))
        for (model, version, arm), some in sorted(groups.items())
    ]


def failures(played: Sequence[Played]) -> dict[str, int]:
    """How often each error was answered."""
    counts: dict[str, int] = defaultdict(int)
    for each in played:
        if each.answer is None:
            counts[f"{each.turn.ask.model}: {each.error}"] += 1
    return dict(counts)


def stages(played: Sequence[Played], model: str) -> list[StageRow]:
    """A row for each stage that the router told of, then `explained` (the stages' part of total) and `total`."""
    told = [each.answer.stages_ms for each in played if each.answer and each.turn.ask.model == model]
    told = [stage for stage in told if stage.get(TOTAL)]
    if not told:
        return []
    mean_total = sum(stage[TOTAL] for stage in told) / len(told)
    names = [name for name in STAGES if any(name in stage for stage in told)]
    columns: Mapping[str, list[float]] = {name: [stage.get(name, 0.0) for stage in told] for name in names}
    rows = [_stage(name, values, mean_total) for name, values in columns.items()]
    explained = [sum(stage.get(name, 0.0) for name in names) for stage in told]
    return [
        *rows,
        _stage("explained", explained, mean_total),
        _stage(TOTAL, [stage[TOTAL] for stage in told], mean_total),
    ]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _stage(name: str, values: Sequence[float], mean_total: float) -> StageRow:
    return StageRow(name, quantile(values, 0.5), quantile(values, 0.99), sum(values) / len(values) / mean_total)


def as_json(played: Sequence[Played]) -> dict[str, Any]:
    """The same for scripts."""
    models = sorted({each.turn.ask.model for each in played})
    return {
        "requests": len(played),
        "versions": [{**row._asdict(), "accuracy": row.accuracy} for row in by_version(played)],
        "failures": failures(played),
        "stages": {model: [row._asdict() for row in stages(played, model)] for model in models},
    }
