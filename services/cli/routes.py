"""turnout routes: which versions get which share of the traffic."""

import asyncio
import getpass
import time
from contextlib import suppress
from typing import Annotated

import structlog
import typer

from services.chassis.etcd import Change, EtcdClient, Mirror
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, EtcdOption, JsonOption, PrefixOption, Target
from services.cli.output import print_json, say, show, table
from services.cli.readiness import versions
from services.cli.route_edit import Edit, edited, in_words, parse_shares
from services.core import keys
from services.core.names import is_model_name
from services.core.registry import ConfigStatus
from services.core.route_spec import RouteSpec
from services.core.spec import BadValueError
from services.fleet.applied import APPLIED_S, Applied, until_applied

app = typer.Typer(help="Which versions get which share of traffic.", no_args_is_help=True, rich_markup_mode=None)
_TRIES = 5

ModelArgument = Annotated[str, typer.Argument(help="The model's name.")]


@app.command("get")
def get(
    model: Annotated[str, typer.Argument(help="One model; default: all.")] = "",
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Print routes. Example: turnout routes get digits."""
    routes = asyncio.run(_routes(Target(data_dir, etcd, etcd_prefix), model))
    if json:
        print_json({name: _jsonable(value) for name, value in routes.items()})
        return
    show(table("", ("model", "route"), [(name, describe(value)) for name, value in routes.items()]))


@app.command("set")
def set_route(  # noqa: PLR0913 - a parameter for each option
    model: ModelArgument,
    *,
    stable: Annotated[str | None, typer.Option(help="Version that gets what nothing else claims.")] = None,
    canary: Annotated[list[str] | None, typer.Option(help="VERSION=PERCENT; again for each version.")] = None,
    shadow: Annotated[list[str] | None, typer.Option(help="VERSION=PERCENT of requests to copy; 0 ends it.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="VERSION that is no canary or shadow any more.")] = None,
    sticky_by: Annotated[str | None, typer.Option(help="NAME, header:NAME or input:NAME; empty = none.")] = None,
    author: Annotated[str | None, typer.Option(help="Who changes it; default: your login.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why.")] = None,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Change a route; what is not named stays. Example: turnout routes set digits --canary 2=25 --reason "better"."""
    change = Edit(
        stable,
        parse_shares("--canary", canary or []),
        parse_shares("--shadow", shadow or []),
        tuple(drop or ()),
        sticky_by,
        author if author is not None else _login(),
        reason,
    )
    route, applied = asyncio.run(_set(Target(data_dir, etcd, etcd_prefix), model, change))
    if json:
        print_json({"route": _jsonable(route.dump()), "routers": applied._asdict()})
    else:
        say(f"{model}: {in_words(route)}")
        say(f"in force on {applied.accepted} of {applied.routers} routers" if applied.routers else "no router runs")
    if applied.refused:
        raise CliError(f"{model}: refused by a router: {applied.refused[0]}")
    if applied.accepted < applied.routers:
        raise CliError(f"{model}: some routers have not taken it after {APPLIED_S:g} s: see `turnout routes watch`")


@app.command("watch")
def watch(
    model: Annotated[str, typer.Argument(help="One model; default: all.")] = "",
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Print every change of routes, and which routers took it, until Ctrl-C. Example: turnout routes watch digits."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_watch(Target(data_dir, etcd, etcd_prefix), Watcher(model, json=json)))


class Watcher:
    """Says what changes: routes, and what routers make of them."""

    def __init__(self, model: str, *, json: bool) -> None:
        self._model = model
        self._json = json
        self._said: dict[tuple[str, str], str] = {}

    def take(self, changes: list[Change]) -> None:
        for change in changes:
            if change.key.startswith(keys.ROUTES):
                self._say(change.key, "route", describe(change.value) if change.value is not None else "removed")
            elif change.key.startswith(f"{keys.STATUS}router/") and change.value is not None:
                self._status(change.key.split("/")[2], change.value)

    def _status(self, router: str, value: bytes) -> None:
        try:
            status = ConfigStatus.parse(value)
        except BadValueError:
            return
        for key, revision in status.accepted.items():
            if key.startswith(keys.ROUTES) and key not in status.refused:
                self._say(key, f"router {router}", f"holds revision {revision}")
        for key, reason in status.refused.items():
            if key.startswith(keys.ROUTES):
                self._say(key, f"router {router}", f"REFUSED: {reason}")

    def _say(self, key: str, who: str, what: str) -> None:
        model = key.removeprefix(keys.ROUTES)
        if self._model not in ("", model) or self._said.get((key, who)) == what:
            return
        self._said[key, who] = what
        now = time.strftime("%H:%M:%S")
        if self._json:
            print_json({"time": now, "model": model, "who": who, "what": what})
        else:
            say(f"{now}  {model}  {who}: {what}")


def describe(value: bytes) -> str:
    """A route's value in one line; why it is none, if it is none."""
    try:
        return in_words(RouteSpec.parse(value))
    except BadValueError as error:
        return f"not a route, so the last good one stays: {error}"


async def change_route(client: EtcdClient, model: str, change: Edit) -> tuple[RouteSpec, int]:
    """Write the changed route by compare-and-swap; the route and its revision. Raises CliError."""
    key = f"{keys.ROUTES}{model}"
    await _check_known(client, model, change)
    for _ in range(_TRIES):
        entry = await client.get(key)
        try:
            before = RouteSpec.parse(entry.value) if entry else None
        except BadValueError as error:
            raise CliError(
                f"{model} has a value that is no route ({error}); routers go on with the last good one:"
                f" `etcdctl put {client.prefix}{key}` a good one first"
            ) from None
        route = edited(before, change)
        if await client.put_if(key, route.dump(), mod_revision=entry.mod_revision if entry else 0):
            written = await client.get(key)
            return route, written.mod_revision if written else 0
    raise CliError(f"others keep changing the route of {model}: look with `turnout routes watch {model}`")


async def _set(target: Target, model: str, change: Edit) -> tuple[RouteSpec, Applied]:
    if not is_model_name(model):
        raise CliError(f"{model!r} is no name of a model", code=2)
    async with target.open_etcd() as client:
        route, revision = await change_route(client, model, change)
        return route, await until_applied(client, f"{keys.ROUTES}{model}", revision, APPLIED_S)


async def _check_known(client: EtcdClient, model: str, change: Edit) -> None:
    """Raise CliError for an unknown model, or a version that no pod has, if any pod says what it has."""
    models = [key.removeprefix(keys.MODELS) for key in (await client.list(keys.MODELS)).entries]
    if model not in models:
        raise CliError(f"there is no model {model}; there are {', '.join(models) or 'none'}")
    known = [version.version for version in await versions(client) if version.model == model]
    named = [change.stable] if change.stable else []
    named += [
        version for shares in (change.canary, change.shadow) for version, percent in (shares or {}).items() if percent
    ]
    unknown = [version for version in named if version not in known]
    if known and unknown:
        raise CliError(f"{model} has no version {unknown[0]}; its versions are {', '.join(sorted(known, key=int))}")


async def _routes(target: Target, model: str) -> dict[str, bytes]:
    async with target.open_etcd() as client:
        listing = await client.list(keys.ROUTES)
    routes = {key.removeprefix(keys.ROUTES): entry.value for key, entry in sorted(listing.entries.items())}
    if model and model not in routes:
        raise CliError(f"there is no route for {model}; there are routes for {', '.join(routes) or 'no model'}")
    return {model: routes[model]} if model else routes


async def _watch(target: Target, watcher: Watcher) -> None:
    async with target.open_etcd() as client:
        log = structlog.wrap_logger(structlog.ReturnLogger())
        mirror = Mirror(client, [keys.ROUTES, f"{keys.STATUS}router/"], watcher.take, snapshot=None, log=log)
        await client.status()  # an etcd that is not there is said at once, one that goes is waited for
        await mirror.run()


def _jsonable(value: bytes) -> object:
    try:
        return RouteSpec.parse(value).model_dump(mode="json", exclude_defaults=True)
    except BadValueError as error:
        return {"error": str(error)}


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
