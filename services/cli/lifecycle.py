"""turnout models index, load, unload: the repository of a whole mesh."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, EtcdOption, JsonOption, PrefixOption, Target
from services.cli.output import print_json, say, show, table
from services.cli.progress import Show, step
from services.core.desired_state import IndexRow
from services.core.load_request import CONFIG, FILE, LoadRequest, parse_load
from services.core.names import is_version
from services.fleet.lifecycle import Lifecycle, Outcome
from services.fleet.uploads import Uploads

_COLUMNS = ("name", "version", "state", "reason", "pods")
_LONGEST_SHOWN = 100

ModelArgument = Annotated[str, typer.Argument(help="The model's name.")]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for every pod.")]


def index(
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Print every version of every model: its state, and why. Example: turnout models index."""
    rows = asyncio.run(_index(Target(data_dir, etcd, etcd_prefix)))
    if json:
        print_json([row._asdict() for row in rows])
        return
    cells = [(row.model, row.version or "-", row.state, row.reason, f"{row.pods} of {row.of_pods}") for row in rows]
    show(table("", _COLUMNS, cells, ("pods",)))
    for model, notes in {row.model: row.notes for row in rows}.items():
        for note in notes:
            say(f"note: {model}: {note}")


def load(  # noqa: PLR0913 - a parameter for each option
    model: ModelArgument,
    *,
    config: Annotated[
        str, typer.Option(help="JSON: fields of models/MODEL, or of Triton's model configuration, to override.")
    ] = "",
    version: Annotated[
        list[str] | None, typer.Option(help="Load this version, besides those that a route names; may be repeated.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(help="VERSION/PATH=FILE: serve these files instead of the repository's; needs --uploads."),
    ] = None,
    uploads: Annotated[Path | None, typer.Option(help="Folder for --file, which every pod sees.")] = None,
    timeout: TimeoutOption = 120.0,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Load a model, or load it anew; undone where a pod cannot. Example: turnout models load digits --version 2."""
    if file and uploads is None:
        raise CliError("--file needs --uploads: a folder that every pod sees at the same path", code=2)
    request = request_of(model, config, version or (), file or ())
    target = Target(data_dir, etcd, etcd_prefix)
    outcome = _done(f"loading {model}", partial(_load, target, model, request, uploads, timeout), json=json)
    _tell(model, outcome, "READY in", json=json)


def unload(
    model: ModelArgument,
    *,
    timeout: TimeoutOption = 60.0,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Have every pod let go of a model; the index keeps it. Example: turnout models unload digits."""
    target = Target(data_dir, etcd, etcd_prefix)
    outcome = _done(f"unloading {model}", partial(_unload, target, model, timeout), json=json)
    _tell(model, outcome, "let go by", json=json)


def _done(title: str, act: Callable[[Show], Coroutine[Any, Any, Outcome]], *, json: bool) -> Outcome:
    """What comes of `act`, which is watched unless nothing but the outcome is to be printed."""
    if json:
        return asyncio.run(act(_quiet))
    with step(title) as progress:
        return asyncio.run(act(_short(progress)))


def request_of(model: str, config: str, versions: Sequence[str], files: Sequence[str]) -> LoadRequest:
    """What options ask for. Raises CliError or a ServingError."""
    parameters: dict[str, Any] = {CONFIG: config or "{}"}
    for each in files:
        place, equals, path = each.partition("=")
        if not equals:
            raise CliError(f"--file {each!r}: expected VERSION/PATH=FILE, as in 1/model.onnx=./model.onnx", code=2)
        try:
            parameters[f"{FILE}{place}"] = Path(path).expanduser().read_bytes()
        except OSError as error:
            raise CliError(f"--file {each!r}: {error.strerror}", code=2) from None
    request = parse_load(model, parameters)
    for version in versions:
        if not is_version(version):
            raise CliError(f"--version {version!r} is no version, which is a whole number", code=2)
    if not versions:
        return request
    return LoadRequest({**request.overrides, "version_policy": {"specific": list(versions)}}, request.files)


async def _index(target: Target) -> list[IndexRow]:
    async with target.open_etcd() as client:
        return await Lifecycle(client, _log()).index()


async def _load(
    target: Target, model: str, request: LoadRequest, uploads: Path | None, timeout_s: float, progress: Show
) -> Outcome:
    async with target.open_etcd() as client:
        await client.status()  # an etcd that is not there is said at once
        lifecycle = Lifecycle(client, _log(), Uploads(uploads) if uploads else None)
        return await lifecycle.load(model, request, timeout_s, progress)


async def _unload(target: Target, model: str, timeout_s: float, progress: Show) -> Outcome:
    async with target.open_etcd() as client:
        await client.status()
        return await Lifecycle(client, _log()).unload(model, timeout_s, progress)


def _tell(model: str, outcome: Outcome, what: str, *, json: bool) -> None:
    if json:
        print_json(
            {"model": model, "pods": outcome.pods, "spec": outcome.spec.model_dump(mode="json", exclude_defaults=True)}
        )
    elif outcome.pods:
        say(f"{model}: {what} {outcome.pods} pod{'s' if outcome.pods > 1 else ''}")
    else:
        say(f"{model}: no pod of pool {outcome.spec.placement.pool} runs; those that come will go by this")


def _short(progress: Show) -> Show:
    return lambda note: progress(note if len(note) <= _LONGEST_SHOWN else f"{note[:_LONGEST_SHOWN]}…")


def _quiet(_: str) -> None:
    """With --json nothing is printed but the outcome."""


def _log() -> Any:
    return structlog.wrap_logger(structlog.ReturnLogger())
