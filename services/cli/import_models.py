"""turnout models import: what another server's configuration says, put into models/MODEL."""

import asyncio
import json as json_module
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from services.chassis.etcd import EtcdClient
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, EtcdOption, JsonOption, PrefixOption, Target
from services.cli.output import print_json, say
from services.core import keys, tf_serving_config, triton_config
from services.core.imported import Imported
from services.core.model_spec import ModelSpec, filled, merged
from services.core.names import is_model_name, is_version, version_order
from services.core.route_spec import RouteSpec
from services.core.spec import BadValueError

_TRIES = 5


class Outcome(NamedTuple):
    """What became of one model."""

    model: str
    spec: ModelSpec | None = None
    notes: tuple[str, ...] = ()
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        spec = self.spec.model_dump(mode="json", exclude_defaults=True) if self.spec else None
        return {"model": self.model, "spec": spec, "notes": list(self.notes), "refused": self.refused}


def import_models(  # noqa: PLR0913 - a parameter for each option
    path: Annotated[
        Path,
        typer.Argument(
            help="A Triton model repository, or a model's folder in it; or TensorFlow Serving's model.config."
        ),
    ],
    model: Annotated[list[str] | None, typer.Argument(help="Only these models.")] = None,
    *,
    repository: Annotated[str, typer.Option(help="Where pods find the models, if not at PATH: a URL.")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Also fields that models/MODEL has already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written.")] = False,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Take models over from Triton or TensorFlow Serving. Example: turnout models import ./models --dry-run."""
    found = [each for each in read(path, repository) if not model or each.model in model]
    missing = set(model or ()) - {each.model for each in found}
    if missing or not found:
        raise CliError(f"{path} holds no model {', '.join(sorted(missing))}".rstrip(), code=2)
    outcomes = asyncio.run(_take_all(Target(data_dir, etcd, etcd_prefix), found, replace=replace, dry_run=dry_run))
    if json:
        print_json([each.to_json() for each in outcomes])
    else:
        _tell(outcomes, "would be" if dry_run else "is")
    if refused := [each.model for each in outcomes if each.refused]:
        raise CliError(f"not imported: {', '.join(refused)}")


def read(path: Path, repository: str = "") -> list[Imported | Outcome]:
    """Every model that `path` configures, and those that cannot be taken. Raises CliError when it is no such path."""
    if path.is_file() and path.name != triton_config.FILE:
        return list(_from_tf_serving(path, repository))
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        raise CliError(f"{path} is not there", code=2)
    if (folder / triton_config.FILE).is_file():
        return [_from_triton(folder, repository)]
    inside = [entry for entry in sorted(folder.iterdir()) if entry.is_dir() and is_model_name(entry.name)]
    models = [each for each in inside if (each / triton_config.FILE).is_file() or _versions(each)]
    return [_from_triton(each, repository) for each in models]


def spec_of(imported: Imported, before: ModelSpec | None, *, replace: bool) -> ModelSpec:
    """What `before` leaves open is as imported; with `replace`, all. Raises BadValueError."""
    if not replace:
        return filled(before or ModelSpec(), imported.fields)
    held = before.model_dump(mode="json", exclude_unset=True) if before else {}
    return ModelSpec.parse(json_module.dumps(merged(held, imported.fields)).encode())


def _from_triton(folder: Path, repository: str) -> Imported | Outcome:
    file, model = folder / triton_config.FILE, folder.absolute().name
    try:
        text = file.read_text() if file.is_file() else ""
        imported = triton_config.read(model, text) if text else Imported(model, {})
    except (BadValueError, OSError, UnicodeDecodeError) as error:
        return Outcome(model, refused=str(error))
    ignored = [entry.name for entry in sorted(folder.iterdir()) if entry.is_dir() and not is_version(entry.name)]
    notes = [f"folder {name} is no version: expected a number without leading zeros" for name in ignored]
    fields = {"repository": repository or folder.absolute().parent.as_uri(), **_default(folder), **imported.fields}
    return Imported(model, fields, (*imported.notes, *notes))


def _from_tf_serving(path: Path, repository: str) -> Iterator[Imported]:
    try:
        models = tf_serving_config.read(path.read_text())
    except (BadValueError, OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path}: {error}", code=2) from None
    for each in models:
        root, folder = each.fields["repository"], each.fields.get("folder", each.model)
        fields = {**each.fields, **_default(Path(root) / folder)}
        yield Imported(each.model, fields | ({"repository": repository} if repository else {}), each.notes, each.labels)


def _default(folder: Path) -> dict[str, str]:
    """The latest version answers where no route says otherwise, as it does in both servers."""
    versions = _versions(folder)
    return {"default_version": versions[-1]} if versions else {}


def _versions(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    names = [entry.name for entry in folder.iterdir() if entry.is_dir() and is_version(entry.name)]
    return sorted(names, key=version_order)


async def _take_all(target: Target, found: list[Imported | Outcome], *, replace: bool, dry_run: bool) -> list[Outcome]:
    async with target.open_etcd() as client:
        return [
            each if isinstance(each, Outcome) else await _take(client, each, replace=replace, dry_run=dry_run)
            for each in found
        ]


async def _take(client: EtcdClient, imported: Imported, *, replace: bool, dry_run: bool) -> Outcome:
    """Write one model's key by compare-and-swap."""
    key = f"{keys.MODELS}{imported.model}"
    for _ in range(_TRIES):
        entry = await client.get(key)
        try:
            spec = spec_of(imported, ModelSpec.parse(entry.value) if entry else None, replace=replace)
        except BadValueError as error:
            return Outcome(imported.model, notes=imported.notes, refused=str(error))
        if dry_run or await client.put_if(key, spec.dump(), mod_revision=entry.mod_revision if entry else 0):
            notes = [] if dry_run or not imported.labels else [await _label(client, imported, spec)]
            return Outcome(imported.model, spec, (*imported.notes, *notes))
    return Outcome(imported.model, refused=f"others keep changing models/{imported.model}; try again")


async def _label(client: EtcdClient, imported: Imported, spec: ModelSpec) -> str:
    """Labels live in a route: one is made where there is none."""
    labels = ", ".join(f"{label} = {version}" for label, version in imported.labels.items())
    if spec.default_version is None:
        return f"labels {labels}: make a route with them once a version is there"
    route = RouteSpec(stable=spec.default_version, labels=imported.labels)
    if await client.put_if(f"{keys.ROUTES}{imported.model}", route.dump(), mod_revision=0):
        return f"a route was made: stable {spec.default_version}, labels {labels}"
    return f"labels {labels} are not set: there is a route already"


def _tell(outcomes: list[Outcome], verb: str) -> None:
    for each in outcomes:
        what = (
            f"refused: {each.refused}" if each.refused else f"{verb} {each.spec.dump().decode() if each.spec else ''}"
        )
        say(f"{each.model}: {what}")
        for note in each.notes:
            say(f"  note: {note}")
