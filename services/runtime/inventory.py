"""What a pod says of its models: every version of its repository, and how far it is with each."""

from collections.abc import Mapping, Sequence

from services.core.desired_state import UNLOADED
from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.core.registry import Inventory, InventoryVersion
from services.runtime.catalogue import Catalogue
from services.runtime.held_version import HeldVersion


def inventory_of(
    pool: str,
    specs: Mapping[str, ModelSpec],
    revisions: Mapping[str, int],
    catalogue: Catalogue,
    held_versions: Mapping[ModelVersion, HeldVersion],
) -> Inventory:
    """`specs` are the pool's; `revisions` of them that the last whole look at the repository went by."""
    models: dict[str, dict[str, InventoryVersion]] = {}
    for model, spec in specs.items():
        awaited = coming(spec, model, catalogue)
        sighted = catalogue.versions.get(model, {})
        models[model] = {version: _unheld(is_coming=version in awaited) for version in sighted}
    for (model, version), held in held_versions.items():
        is_there = version in models.get(model, {}) or held.current is not None
        if model in models and is_there:
            models[model][version] = held.inventory()
    faults = {model: fault for model, fault in catalogue.faults.items() if model in specs}
    notes = {model: notes for model in specs if (notes := catalogue.configured.notes(model))}
    return Inventory(pool=pool, models=models, specs=dict(revisions), faults=faults, notes=notes)


def is_settled(specs: Mapping[str, ModelSpec], wanted: Sequence[HeldVersion], catalogue: Catalogue) -> bool:
    """Whether all that can come has come; not while models are expected and none is there."""
    if not any(spec.loaded for spec in specs.values()):
        return True
    is_coming = any(coming(spec, model, catalogue) for model, spec in specs.items())
    return not is_coming and all(each.is_over for each in wanted) and any(each.is_serving for each in wanted)


def coming(spec: ModelSpec, model: str, catalogue: Catalogue) -> set[str]:
    """Versions that the policy will choose once their files are whole."""
    chosen = spec.version_policy.choose(list(catalogue.versions.get(model, {}))) if spec.loaded else set()
    return chosen - catalogue.available().get(model, set())


def _unheld(*, is_coming: bool) -> InventoryVersion:
    """A version in the repository that nothing is done about, or not yet."""
    if is_coming:
        return InventoryVersion(state="LOADING", reason="its files are still written to")
    return InventoryVersion(state="UNAVAILABLE", reason=UNLOADED)
