"""turnout models inspect: all that is known of one version, from etcd, a router and the pods' metrics."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

import aiohttp
import orjson
import typer

from services.chassis.etcd import EtcdClient
from services.cli.client import GrpcClient
from services.cli.errors import CliError
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, EtcdOption, JsonOption, PrefixOption, Target
from services.cli.output import print_json, say, show, table
from services.cli.security import caller
from services.core import keys
from services.core.desired_state import model_notes
from services.core.model_spec import ModelSpec
from services.core.names import ModelVersion, is_version, version_order
from services.core.registry import Endpoint, Inventory, InventoryVersion, ServiceRecord
from services.core.route_spec import RouteSpec
from services.core.signature import TensorSpec
from services.core.spec import BadValueError
from services.fleet.lifecycle import inventories_of

_SCRAPE_S = 2.0
_MEMORY = re.compile(r'^turnout_runtime_worker_memory_bytes\{instance="([^"]+)"\} (\S+)$', re.MULTILINE)
_MIB = 1 << 20


class Known(NamedTuple):
    """What etcd says of one model."""

    spec: ModelSpec
    route: RouteSpec | None
    inventories: Mapping[str, Inventory]
    runtimes: Mapping[str, ServiceRecord]


def inspect(
    model: Annotated[str, typer.Argument(help="The model's name.")],
    version: Annotated[str, typer.Argument(help="Default: stable, else default_version, else the newest.")] = "",
    *,
    address: Annotated[
        str, typer.Option(help="The router's gRPC door, for the signature; default: of --data-dir.")
    ] = "",
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    etcd: EtcdOption = "",
    etcd_prefix: PrefixOption = "",
    json: JsonOption = False,
) -> None:
    """Print a version's spec, signature, pods and processes. Example: turnout models inspect digits 2."""
    target = Target(data_dir, etcd, etcd_prefix)
    found = asyncio.run(_inspect(target, model, version, target.router(address, "GRPC_ADDRESS")))
    if json:
        print_json(found)
        return
    for line in lines(found):
        say(line)
    columns = ("pod", "instance", "state", "restarts", "memory")
    cells = [(*(row[name] for name in columns[:-1]), _mib(row["memory_bytes"])) for row in found["instances"]]
    if cells:
        show(table("", columns, cells, ("restarts", "memory")))


def lines(found: Mapping[str, Any]) -> list[str]:
    """What is known, but for the instances, for people."""
    said = [(name, found[name]) for name in ("model", "version", "state", "reason", "framework", "digest")]
    said.append(("endpoints", ", ".join(found["endpoints"])))
    for name in ("inputs", "outputs"):
        said += [(name[:-1], f"{each['name']} {each['datatype']}{list(each['shape'])}") for each in found[name]]
    spec = [f"{name} {orjson.dumps(value).decode()}" for name, value in found["spec"].items()]
    said += [("spec", each) for each in spec or ["all as by default"]]
    said += [("note", note) for note in found["notes"]]
    return [f"{name:10} {value}" for name, value in said if value]


async def _inspect(target: Target, model: str, version: str, router: str) -> dict[str, Any]:
    async with target.open_etcd() as client:
        known = await _known(client, model)
        version = version or _default(model, known)
        if not is_version(version):
            raise CliError(f"{version!r} is no version, which is a whole number", code=2)
        listing = await client.list(keys.endpoint(model, version, ""))
    pods = {
        pod: each.models[model][version]
        for pod, each in known.inventories.items()
        if version in each.models.get(model, {})
    }
    if not pods and version not in known.spec.versions:
        versions = {name for each in known.inventories.values() for name in each.models.get(model, {})}
        raise CliError(
            f"no pod knows {ModelVersion(model, version)}; known: {', '.join(sorted(versions, key=int)) or 'none'}"
        )
    memory = await _memory(record.metrics for pod, record in known.runtimes.items() if pod in pods)
    inputs, outputs = await _signature(router, model, version)
    return {
        "model": model,
        "version": version,
        **_summary(pods),
        "endpoints": sorted(Endpoint.parse(entry.value).address for entry in listing.entries.values()),
        "spec": known.spec.for_version(version).model_dump(mode="json", exclude_defaults=True, exclude={"versions"}),
        "inputs": [each._asdict() for each in inputs],
        "outputs": [each._asdict() for each in outputs],
        "notes": model_notes(model, known.inventories.values()),
        "instances": _instances(pods, memory),
    }


def _summary(pods: Mapping[str, InventoryVersion]) -> dict[str, Any]:
    """Of several pods those that differ are all named."""
    fields: dict[str, set[str]] = {"state": set(), "reason": set(), "framework": set(), "digest": set()}
    for each in pods.values():
        for name, values in fields.items():
            if value := getattr(each, name):
                values.add(value)
    return {name: ", ".join(sorted(values)) for name, values in fields.items()}


def _instances(pods: Mapping[str, InventoryVersion], memory: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        {"pod": pod, "instance": name, "state": each.state, "restarts": each.restarts, "memory_bytes": memory.get(name)}
        for pod, version in sorted(pods.items())
        for name, each in sorted(version.instances.items())
    ]


async def _known(client: EtcdClient, model: str) -> Known:
    entry = await client.get(f"{keys.MODELS}{model}")
    if entry is None:
        models = (await client.list(keys.MODELS)).entries
        names = ", ".join(key.removeprefix(keys.MODELS) for key in models)
        raise CliError(f"there is no model {model}; there are {names or 'none'}")
    try:
        spec = ModelSpec.parse(entry.value)
    except BadValueError as error:
        raise CliError(f"models/{model} is refused: {error}") from None
    routed = await client.get(f"{keys.ROUTES}{model}")
    route = None
    with suppress(BadValueError):
        route = RouteSpec.parse(routed.value) if routed else None
    status = (await client.list(f"{keys.STATUS}runtime/")).entries
    services = (await client.list(f"{keys.SERVICES}runtime/")).entries
    return Known(
        spec,
        route,
        inventories_of({key: each.value for key, each in status.items()}),
        {key.rpartition("/")[2]: ServiceRecord.parse(each.value) for key, each in services.items()},
    )


def _default(model: str, known: Known) -> str:
    if named := (known.route.stable if known.route else known.spec.default_version):
        return named
    versions = {
        version: each
        for inventory in known.inventories.values()
        for version, each in inventory.models.get(model, {}).items()
    }
    best = [version for version, each in versions.items() if each.state == "READY"] or list(versions)
    if not best:
        raise CliError(f"no pod knows a version of {model}")
    return max(best, key=version_order)


async def _signature(router: str, model: str, version: str) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
    """As the router's callers see it; nothing where it has none."""
    async with GrpcClient(router, timeout_s=5) as client:
        try:
            return await client.signature_of(model, version)
        except CliError:
            return (), ()


async def _memory(addresses: Iterable[str]) -> dict[str, int]:
    """Bytes by instance, of pods whose metrics can be read from here."""
    found: dict[str, int] = {}
    who = caller()
    connector = aiohttp.TCPConnector(ssl=who.context())
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=_SCRAPE_S)) as session:
        for address in addresses:
            with suppress(aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
                async with session.get(f"{who.scheme}://{address}/metrics") as answer:
                    found |= {name: int(float(value)) for name, value in _MEMORY.findall(await answer.text())}
    return found


def _mib(size: int | None) -> str:
    return f"{size / _MIB:.0f} MiB" if size is not None else "?"
