"""turnout callers: who may call, by which keys, and what they may."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from services.chassis.etcd import EtcdClient
from services.cli.caller_edit import NewCaller, in_words, made, with_key, without_keys
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, EtcdOption, JsonOption, PrefixOption, Target
from services.cli.output import print_json, say, show, table
from services.core import api_key, keys
from services.core.api_key import RANDOM_BYTES, ApiKey
from services.core.caller_spec import CallerSpec
from services.core.names import is_model_name
from services.core.spec import BadValueError
from services.fleet.applied import APPLIED_S, Applied, until_applied

app = typer.Typer(help="Who may call, and what they may.", no_args_is_help=True, rich_markup_mode=None)
_TRIES = 5
NameArgument = Annotated[str, typer.Argument(help="The caller's name.")]
ExpiresOption = Annotated[float | None, typer.Option("--expires-in-days", help="Default: the key never expires.")]
Change = Callable[[CallerSpec | None], CallerSpec]


@app.command("list")
def list_callers(
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """List callers: what they may, and how many keys they have. Example: turnout callers list."""
    callers = asyncio.run(_all(Target(data_dir, etcd, etcd_prefix)))
    if json:
        print_json({name: _jsonable(caller) for name, caller in callers.items()})
        return
    if not callers:
        say("there are no callers: `turnout callers add NAME` makes one, with a key")
        return
    rows = [
        (name, _words(caller), "" if isinstance(caller, str) else len(caller.keys)) for name, caller in callers.items()
    ]
    show(table("", ("caller", "may", "keys"), rows, ("keys",)))


@app.command("show")
def show_caller(
    name: NameArgument,
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
) -> None:
    """Print one caller as JSON, its keys by ID only. Example: turnout callers show shop."""
    callers = asyncio.run(_all(Target(data_dir, etcd, etcd_prefix)))
    if name not in callers:
        raise CliError(f"there is no caller {name}; there are {', '.join(callers) or 'none'}")
    print_json(_jsonable(callers[name]))


@app.command("add")
def add(  # noqa: PLR0913 - a parameter for each option
    name: NameArgument,
    *,
    role: Annotated[
        list[str] | None, typer.Option(help="predict, manage, read-metrics or internal; again for each.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="A model, or several: shop-*; again for each.")] = None,
    requests_per_s: Annotated[float | None, typer.Option(help="Of all routers together.")] = None,
    rows_per_s: Annotated[float | None, typer.Option(help="Of all routers together.")] = None,
    max_concurrency: Annotated[int | None, typer.Option(help="Requests in flight.")] = None,
    max_priority: Annotated[int | None, typer.Option(help="The highest that it gets; 1 is the highest of all.")] = None,
    subject: Annotated[list[str] | None, typer.Option(help="Of JWTs that are the caller's.")] = None,
    certificate: Annotated[list[str] | None, typer.Option(help="CN=NAME,O=… or DNS:NAME, URI:NAME.")] = None,
    key: Annotated[bool, typer.Option("--key/--no-key", help="Whether it gets an API key.")] = True,
    expires_in_days: ExpiresOption = None,
    note: Annotated[str, typer.Option(help="For people.")] = "",
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Make a caller; its key is shown this once. Example: turnout callers add shop --model 'shop-*'."""
    wanted = NewCaller(
        tuple(role or ()), tuple(model or ()), tuple(subject or ()), tuple(certificate or ()),
        requests_per_s, rows_per_s, max_concurrency, max_priority, note,
    )  # fmt: skip
    caller, new = made(wanted), _new_key() if key else None

    def change(before: CallerSpec | None) -> CallerSpec:
        if before is not None:
            raise CliError(f"there is a caller {name}: `turnout callers rotate {name}` gives it another key")
        return _keyed(caller, new, expires_in_days)

    _say(name, new, *_change(Target(data_dir, etcd, etcd_prefix), name, change), json=json)


@app.command("rotate")
def rotate(
    name: NameArgument,
    *,
    expires_in_days: ExpiresOption = None,
    drop_others: Annotated[bool, typer.Option("--drop-others", help="The keys of before end at once.")] = False,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Give a caller one more key; `revoke` ends the old one later. Example: turnout callers rotate shop."""
    new = _new_key()

    def change(before: CallerSpec | None) -> CallerSpec:
        caller = _known(name, before)
        if drop_others:
            caller = caller.model_copy(update={"keys": {}})
        return _keyed(caller, new, expires_in_days)

    _say(name, new, *_change(Target(data_dir, etcd, etcd_prefix), name, change), json=json)


@app.command("revoke")
def revoke(
    name: NameArgument,
    key_ids: Annotated[list[str] | None, typer.Argument(help="IDs of its keys, as `show` lists them.")] = None,
    *,
    whole: Annotated[bool, typer.Option("--all", help="The caller is no more.")] = False,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """End keys of a caller, or the caller itself. Example: turnout callers revoke shop abcdefgh23456789."""
    target = Target(data_dir, etcd, etcd_prefix)
    if whole == bool(key_ids):
        raise CliError("name keys by their IDs, or say --all: then the caller is no more", code=2)
    if whole:
        asyncio.run(_remove(target, name))
        say(f"{name}: is no caller any more")
        return
    _say(
        name,
        None,
        *_change(target, name, lambda before: without_keys(name, _known(name, before), key_ids or ())),
        json=json,
    )


def _new_key() -> ApiKey:
    return api_key.make(secrets.token_bytes(RANDOM_BYTES))


def _keyed(caller: CallerSpec, key: ApiKey | None, expires_in_days: float | None) -> CallerSpec:
    now = datetime.now(UTC).replace(microsecond=0)
    expires = now + timedelta(days=expires_in_days) if expires_in_days is not None else None
    return with_key(caller, key, now, expires) if key else caller


def _known(name: str, caller: CallerSpec | None) -> CallerSpec:
    if caller is None:
        raise CliError(f"there is no caller {name}: `turnout callers add {name}` makes it")
    return caller


def _say(name: str, key: ApiKey | None, caller: CallerSpec, applied: Applied, *, json: bool) -> None:
    if json:
        said = {"caller": name, **_jsonable(caller), "routers": applied._asdict()}
        print_json({**said, "key": key.text()} if key else said)
    else:
        where = f"in force on {applied.accepted} of {applied.routers} routers" if applied.routers else "no router runs"
        say(f"{name}: {in_words(caller)}; {where}")
        if key:
            say("its key, which is shown this once:")
            say(key.text())
    if applied.refused:
        raise CliError(f"{name}: refused by a router: {applied.refused[0]}")


def _change(target: Target, name: str, change: Change) -> tuple[CallerSpec, Applied]:
    if not is_model_name(name):
        raise CliError(f"{name!r} is no name of a caller: letters, digits, '.', '_' and '-'", code=2)
    return asyncio.run(_changed(target, name, change))


async def _changed(target: Target, name: str, change: Change) -> tuple[CallerSpec, Applied]:
    async with target.open_etcd() as client:
        caller, revision = await change_caller(client, name, change)
        return caller, await until_applied(client, f"{keys.CALLERS}{name}", revision, APPLIED_S)


async def change_caller(client: EtcdClient, name: str, change: Change) -> tuple[CallerSpec, int]:
    """Write the changed caller by compare-and-swap; the caller and its revision. Raises CliError."""
    key = f"{keys.CALLERS}{name}"
    for _ in range(_TRIES):
        entry = await client.get(key)
        try:
            before = CallerSpec.parse(entry.value) if entry else None
        except BadValueError as error:
            raise CliError(
                f"{name} has a value that is no caller ({error}): `turnout callers revoke {name} --all`"
            ) from None
        caller = change(before)
        if await client.put_if(key, caller.dump(), mod_revision=entry.mod_revision if entry else 0):
            written = await client.get(key)
            return caller, written.mod_revision if written else 0
    raise CliError(f"others keep changing the caller {name}: try again")


async def _remove(target: Target, name: str) -> None:
    async with target.open_etcd() as client:
        if await client.get(f"{keys.CALLERS}{name}") is None:
            raise CliError(f"there is no caller {name}")
        await client.delete(f"{keys.CALLERS}{name}")


async def _all(target: Target) -> dict[str, CallerSpec | str]:
    """Callers by name; in words what is wrong with one that is none."""
    async with target.open_etcd() as client:
        listing = await client.list(keys.CALLERS)
    found: dict[str, CallerSpec | str] = {}
    for key, entry in sorted(listing.entries.items()):
        try:
            found[key.removeprefix(keys.CALLERS)] = CallerSpec.parse(entry.value)
        except BadValueError as error:
            found[key.removeprefix(keys.CALLERS)] = f"not a caller, so the last good one stays: {error}"
    return found


def _words(caller: CallerSpec | str) -> str:
    return caller if isinstance(caller, str) else in_words(caller)


def _jsonable(caller: CallerSpec | str) -> dict[str, Any]:
    """A caller for people and scripts: of its keys, what tells them apart."""
    if isinstance(caller, str):
        return {"error": caller}
    said = caller.model_dump(mode="json", exclude_defaults=True, exclude={"keys"})
    listed = {
        name: key.model_dump(mode="json", exclude_none=True, exclude={"hmac_sha256"})
        for name, key in caller.keys.items()
    }
    return {"roles": caller.roles, "models": caller.models, **said, "keys": listed}
