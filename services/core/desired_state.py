"""Loading as desired state: what load and unload make of models/MODEL, and what the pods of a fleet say of it; pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from services.core.model_spec import ModelSpec, merged
from services.core.names import version_order
from services.core.registry import Inventory, InventoryVersion, State

UNLOADED = "unloaded"  # Triton's word for a version that is there and not asked for
GIVEN_UP_AFTER = 3  # failures in a row: a pod may try for longer, a caller who waits is told
_BEST_FIRST: tuple[State, ...] = ("READY", "LOADING", "UNLOADING", "UNAVAILABLE", "UNKNOWN")

Pods = Mapping[str, Inventory | None]  # what each live pod says; None: it has just started, and says nothing yet


class Verdict(NamedTuple):
    """What live pods say of a load or unload, in words; it is over once nothing waits, or something failed."""

    pods: int  # of the model's pool
    waits: tuple[str, ...]  # for these
    failed: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        return bool(self.failed) or not self.waits


class IndexRow(NamedTuple):
    """One version of one model in a whole fleet, as Triton's index has it."""

    model: str
    version: str
    state: State
    reason: str
    pods: int  # where it is READY
    of_pods: int  # that know it
    notes: tuple[str, ...] = ()  # of its model: see `model_notes`


def loaded(before: ModelSpec | None, overrides: Mapping[str, Any]) -> ModelSpec:
    """The spec that loads a model: the one of before, with these fields.

    Loading what is loaded loads it anew, but for a change of nothing but `instances`.

    Raises BadValueError naming what of `overrides` is no field, or no value of one.
    """
    fields: dict[str, Any] = before.model_dump(mode="json", exclude_unset=True) if before else {}
    is_anew = before is not None and not (before.loaded and overrides.keys() == {"instances"})
    loads = (before.loads if before else 0) + is_anew
    return ModelSpec.parse(json.dumps({**merged(fields, overrides), "loaded": True, "loads": loads}).encode())


def unloaded(before: ModelSpec) -> ModelSpec:
    """The spec that has every pod let go of the model, and keeps all else for when it is loaded again."""
    return before.model_copy(update={"loaded": False})


def judge_load(pods: Pods, model: str, pool: str, revision: int, named: Sequence[str] = ()) -> Verdict:
    """How far the pods of `pool` are with models/MODEL at `revision`; they must know the versions `named`."""
    waits, failed = _unseen(pods, model, pool, revision), []
    ours = _of_pool(pods, pool)
    for pod, inventory in ours.items():
        if inventory.specs.get(model, -1) < revision:
            continue
        asked = {name: each for name, each in inventory.models.get(model, {}).items() if not _is_unasked(each)}
        if not asked:
            found = inventory.faults.get(model) or "its repository holds no version that the version_policy chooses"
            failed.append(f"{pod}: {found}")
        absent = inventory.faults.get(model) or "not in the repository"
        failed += [f"{pod}: version {version}: {absent}" for version in named if asked and version not in asked]
        for version, each in sorted(asked.items(), key=_by_version):
            words = f"{pod}: version {version}" + (f": {each.reason}" if each.reason else f" is {each.state.lower()}")
            if has_failed(each):
                failed.append(words)
            elif each.state != "READY" or each.update:
                waits.append(words)
    return Verdict(len(ours), tuple(waits), tuple(failed))


def judge_unload(pods: Pods, model: str, pool: str, revision: int) -> Verdict:
    """As `judge_load`, of an unload: it waits for pods that hold anything of the model."""
    waits = _unseen(pods, model, pool, revision)
    ours = _of_pool(pods, pool)
    for pod, inventory in ours.items():
        held = {name: each for name, each in inventory.models.get(model, {}).items() if each.state != "UNAVAILABLE"}
        waits += [
            f"{pod}: version {name} is {each.state.lower()}" for name, each in sorted(held.items(), key=_by_version)
        ]
    return Verdict(len(ours), tuple(waits), ())


def has_failed(version: InventoryVersion) -> bool:
    """Whether its load, or that of what is to take its place, failed for good or again and again."""
    if version.state == "UNAVAILABLE" or version.update == "UNAVAILABLE":
        return True
    return version.failures >= GIVEN_UP_AFTER and (version.state == "LOADING" or version.update == "LOADING")


def index(models: Iterable[str], inventories: Mapping[str, Inventory]) -> list[IndexRow]:
    """Every version of every model, of `models` also those that no pod knows (their version is "")."""
    known: dict[tuple[str, str], dict[str, InventoryVersion]] = {}
    for pod, inventory in sorted(inventories.items()):
        for model, versions in inventory.models.items():
            for version, each in versions.items():
                known.setdefault((model, version), {})[pod] = each
    notes = {model: model_notes(model, inventories.values()) for model, _ in known}
    rows = [_row(model, version, pods)._replace(notes=notes[model]) for (model, version), pods in known.items()]
    for model in set(models) - {row.model for row in rows}:
        faults = [inventory.faults[model] for inventory in inventories.values() if model in inventory.faults]
        rows.append(IndexRow(model, "", "UNAVAILABLE", faults[0] if faults else "no pod knows a version of it", 0, 0))
    return sorted(rows, key=lambda row: (row.model, version_order(row.version or "0")))


def model_notes(model: str, inventories: Iterable[Inventory]) -> tuple[str, ...]:
    """What of a model's config.pbtxt is not done, and why its repository cannot be read now, as any pod says."""
    said: dict[str, None] = {}
    for inventory in inventories:
        said |= dict.fromkeys(inventory.notes.get(model, ()))
        if fault := inventory.faults.get(model):
            said[f"the last known versions are shown: {fault}"] = None
    return tuple(said)


def _row(model: str, version: str, pods: Mapping[str, InventoryVersion]) -> IndexRow:
    """The best state of any pod; the reason of that pod, else of one that is not as well."""
    best = min(pods.values(), key=lambda each: _BEST_FIRST.index(each.state))
    others = [f"{pod}: {each.reason or each.state.lower()}" for pod, each in pods.items() if each.state != best.state]
    reason = best.reason if not others else "; ".join([*([best.reason] if best.reason else []), *others])
    return IndexRow(model, version, best.state, reason, sum(each.state == "READY" for each in pods.values()), len(pods))


def ready_only(rows: Sequence[IndexRow]) -> list[IndexRow]:
    return [row for row in rows if row.state == "READY"]


def _of_pool(pods: Pods, pool: str) -> dict[str, Inventory]:
    return {pod: each for pod, each in sorted(pods.items()) if each is not None and each.pool == pool}


def _unseen(pods: Pods, model: str, pool: str, revision: int) -> list[str]:
    """Who has not come so far as `revision`."""
    silent = [f"{pod} has said nothing yet" for pod, each in sorted(pods.items()) if each is None]
    behind = [pod for pod, each in _of_pool(pods, pool).items() if each.specs.get(model, -1) < revision]
    return silent + [f"{pod} has not seen it yet" for pod in behind]


def _is_unasked(version: InventoryVersion) -> bool:
    return version.state == "UNLOADING" or (version.state == "UNAVAILABLE" and version.reason == UNLOADED)


def _by_version(item: tuple[str, Any]) -> int:
    return version_order(item[0])
