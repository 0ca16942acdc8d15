"""What the demo has in etcd: models, routes and one feature view. Operators' changes to them are kept."""

from collections.abc import Sequence
from pathlib import Path

from services.chassis.etcd import EtcdClient
from services.core import keys
from services.core.batching_spec import Batching
from services.core.feature_spec import Column, FeatureViewSpec
from services.core.model_spec import FeatureUse, ModelSpec
from services.core.route_spec import Canary, RouteSpec
from services.core.spec import BadValueError, Spec

VIEW = "tumor_features"
VIEW_VERSION = 1
ENTITY = "patient_id"
USER = "user_id"
STABLE, CANARY, SHADOW = "1", "2", "3"
CANARY_PERCENT = 10
_AUTHOR, _REASON = "turnout up", "demo"
_TRIES = 5

MODELS = {
    "digits": ModelSpec(default_version=STABLE),
    "tumor": ModelSpec(
        default_version=STABLE,
        features=(FeatureUse(view=VIEW, version=VIEW_VERSION, entity=ENTITY, input="x"),),
    ),
    "ranker": ModelSpec(default_version=STABLE, batching=Batching(max_batch_size=1024, max_queue_size=16_384)),
}
ROUTES = {
    "digits": RouteSpec(
        stable=STABLE,
        canary=(Canary(version=CANARY, percent=CANARY_PERCENT, at=0),),
        shadow={SHADOW: 100},
        sticky_by=USER,
        author=_AUTHOR,
        reason=_REASON,
    ),
    "tumor": RouteSpec(stable=STABLE, author=_AUTHOR, reason=_REASON),
    "ranker": RouteSpec(stable=STABLE, author=_AUTHOR, reason=_REASON),
}


def feature_view(store: Path, columns: Sequence[str]) -> FeatureViewSpec:
    """30 measurements of a patient, in a file on this machine."""
    return FeatureViewSpec(
        store=_url(store), entity=ENTITY, version=VIEW_VERSION, columns=tuple(Column(name=name) for name in columns)
    )


async def write_demo(client: EtcdClient, store: Path, columns: Sequence[str]) -> None:
    """Write what is not there yet; the feature view follows its store when the data folder was moved."""
    wanted: dict[str, Spec] = {f"{keys.FEATURE_VIEWS}{VIEW}": feature_view(store, columns)}
    wanted |= {f"{keys.MODELS}{model}": spec for model, spec in MODELS.items()}
    wanted |= {f"{keys.ROUTES}{model}": route for model, route in ROUTES.items()}
    for key, spec in wanted.items():
        await client.put_if(key, spec.dump(), mod_revision=0)
    await _point_to(client, f"{keys.FEATURE_VIEWS}{VIEW}", _url(store))


async def write_repository(client: EtcdClient, versions: dict[str, list[str]]) -> None:
    """For models that etcd does not know: serve the newest version of each, until a route says otherwise."""
    for model, known in versions.items():
        newest = max(known, key=int)
        await client.put_if(f"{keys.MODELS}{model}", ModelSpec(default_version=newest).dump(), mod_revision=0)


async def _point_to(client: EtcdClient, key: str, store: str) -> None:
    for _ in range(_TRIES):
        entry = await client.get(key)
        try:
            spec = FeatureViewSpec.parse(entry.value) if entry else None
        except BadValueError:
            return  # an operator's to mend: the last good value serves
        if entry is None or spec is None or spec.store == store or not spec.store.startswith("sqlite:"):
            return
        moved = spec.model_copy(update={"store": store})
        if await client.put_if(key, moved.dump(), mod_revision=entry.mod_revision):
            return


def _url(store: Path) -> str:
    return f"sqlite://{store.absolute()}"
