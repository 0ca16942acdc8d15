"""turnout models: what is known, what is loaded, who gets what; and what changes that."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple

import typer

from services.chassis.etcd import EtcdClient
from services.cli import import_models, inspect_model, lifecycle
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, EtcdOption, JsonOption, PrefixOption, Target
from services.cli.output import print_json, say, show, table
from services.cli.readiness import versions
from services.core import keys
from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion
from services.core.registry import InventoryVersion
from services.core.route_spec import RouteSpec
from services.core.spec import BadValueError, Spec

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.command("import")(import_models.import_models)
app.command("index")(lifecycle.index)
app.command("inspect")(inspect_model.inspect)
app.command("load")(lifecycle.load)
app.command("unload")(lifecycle.unload)
_COLUMNS = ("model", "version", "state", "replicas", "share", "digest", "")
_DIGEST_SHOWN = 12
_REFUSED = "route refused"


class Row(NamedTuple):
    """One version of one model."""

    model: str
    version: str
    state: str
    replicas: int  # endpoints
    share: str  # of the traffic, in words
    digest: str
    reason: str


@app.callback()
def models(
    context: typer.Context,
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """List models and versions: state, replicas, share of the traffic. Example: turnout models --json."""
    if context.invoked_subcommand is not None:
        return
    rows = asyncio.run(_rows(Target(data_dir, etcd, etcd_prefix)))
    if json:
        print_json([row._asdict() for row in rows])
        return
    if not rows:
        say("there are no models: `turnout up` brings some, keys models/NAME in etcd name more")
        return
    cells = [(*row[:5], row.digest[:_DIGEST_SHOWN], row.reason) for row in rows]
    show(table("", _COLUMNS, cells, ("replicas",)))


def shares(spec: ModelSpec | None, route: RouteSpec | None) -> dict[str, str]:
    """Version -> what it gets, in words; `route` is None when there is none."""
    if route is None:
        default = spec.default_version if spec else None
        return {default: "default, 100%"} if default else {}
    rest = 100 - sum(each.percent for each in route.canary)
    words: dict[str, list[str]] = {route.stable: [f"stable {rest:g}%"]}
    for each in route.canary:
        words.setdefault(each.version, []).append(f"canary {each.percent:g}%")
    for version, percent in route.shadow.items():
        words.setdefault(version, []).append(f"shadow {percent:g}%")
    for label, version in route.labels.items():
        words.setdefault(version, []).append(f"label {label}")
    return {version: ", ".join(said) for version, said in words.items()}


def rows_of(
    specs: dict[str, ModelSpec | None],
    routes: dict[str, RouteSpec | None],
    known: dict[ModelVersion, InventoryVersion],
    endpoints: Counter[ModelVersion],
) -> list[Row]:
    """Every version that etcd, a route or a pod names, in order."""
    rows = []
    for model in sorted({*specs, *routes, *(version.model for version in known)}):
        is_refused = model in routes and routes[model] is None  # routers go on with the last good one, not known here
        share = {} if is_refused else shares(specs.get(model), routes.get(model))
        names = {*share, *(version.version for version in known if version.model == model)}
        for name in sorted(names, key=int):
            version = ModelVersion(model, name)
            state = known.get(version)
            rows.append(
                Row(
                    model,
                    name,
                    state.state.lower() if state else "in no pod",
                    endpoints[version],
                    _REFUSED if is_refused else share.get(name, ""),
                    state.digest if state else "",
                    state.reason if state else "",
                )
            )
        if not names:
            rows.append(Row(model, "-", "in no pod", 0, "", "", "no version of it is known"))
    return rows


async def _rows(target: Target) -> list[Row]:
    async with target.open_etcd() as client:
        known = await versions(client)
        specs = await parsed(client, keys.MODELS, ModelSpec)
        routes = await parsed(client, keys.ROUTES, RouteSpec)
        endpoints = await endpoints_of(client)
    return rows_of(specs, routes, known, endpoints)


async def parsed(client: EtcdClient, prefix: str, kind: type[Spec]) -> dict[str, Any]:
    """The values below `prefix`; None for one that is not valid."""
    found: dict[str, Any] = {}
    for key, entry in (await client.list(prefix)).entries.items():
        try:
            found[key.removeprefix(prefix)] = kind.parse(entry.value)
        except BadValueError:
            found[key.removeprefix(prefix)] = None
    return found


async def endpoints_of(client: EtcdClient) -> Counter[ModelVersion]:
    listing = await client.list(keys.ENDPOINTS)
    return Counter(ModelVersion(*keys.parse_endpoint(key)[:2]) for key in listing.entries)
