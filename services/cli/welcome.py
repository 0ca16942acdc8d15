"""What a running mesh says to the person who started it: where it is, and what to try."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from services.cli.data_dir import DataDir, Running
from services.cli.demo.keys import CANARY, SHADOW, STABLE, USER
from services.cli.options import DEFAULT_DATA_DIR
from services.cli.output import say, show, table

_TITLES = {
    "REST_ADDRESS": "REST (Open Inference Protocol)",
    "GRPC_ADDRESS": "gRPC (Open Inference Protocol)",
    "TFS_REST_ADDRESS": "REST (TensorFlow Serving)",
    "TFS_GRPC_ADDRESS": "gRPC (TensorFlow Serving)",
    "MANAGEMENT_ADDRESS": "management (REST)",
    "LINK_ADDRESS": "link",
    "METRICS_ADDRESS": "metrics and health",
}
_PATHS = {
    "REST_ADDRESS": "http://{}/v2",
    "TFS_REST_ADDRESS": "http://{}/v1/models",
    "MANAGEMENT_ADDRESS": "http://{}/management/v1/routes",
    "METRICS_ADDRESS": "http://{}/metrics",
}


def show_welcome(data: DataDir, running: Running, *, is_demo: bool) -> None:
    rows = [("etcd", "keys", running.etcd)]
    first, *others = reversed(running.processes)  # the router, whom one calls, before the rest
    for process in (first, *sorted(others, key=lambda each: each.name)):
        for setting, address in process.addresses.items():
            rows.append((process.name, _TITLES.get(setting, setting), _PATHS.get(setting, "{}").format(address)))
    show(table("Serving", ("process", "what", "address"), rows))
    say(f"Logs are in {_relative(data.logs)}, data in {_relative(data.root)}. Try, in another terminal:")
    for line in _demo_commands(data, running) if is_demo else _own_commands(data):
        say(f"  {line}")
    say(
        "Whoever reaches these addresses may call, and load and unload models;"
        f" `{_program('turnout')} callers add NAME` gives a caller a key."
    )
    here = "Ctrl-C, or " if sys.stdin.isatty() else ""  # nobody can press it once detached
    say(f"{here}`{_program('turnout')} down{_where(data)}`{',' if here else ''} stops it.")


def _demo_commands(data: DataDir, running: Running) -> list[str]:
    turnout, where = _program("turnout"), _where(data)
    rest = running.address("router", "REST_ADDRESS")
    route = (
        f'{{"stable":"{STABLE}","canary":[{{"version":"{CANARY}","percent":60,"at":0}}],'
        f'"shadow":{{"{SHADOW}":100}},"sticky_by":"{USER}"}}'
    )
    digit = shlex.quote(str(_relative(data.demo / "digit.npy")))
    return [
        f"{turnout} predict digits --input x=@{digit} --param {USER}=ana{where}",
        f'curl -s http://{rest}/v2/models/tumor/infer -d \'{{"parameters": {{"patient_id": 3}}, "inputs": []}}\'',
        f"{_program('etcdctl')} --endpoints={running.etcd} put {running.etcd_prefix}routes/digits '{route}'",
        f"{turnout} routes watch digits{where}",
    ]


def _own_commands(data: DataDir) -> list[str]:
    turnout, where = _program("turnout"), _where(data)
    return [f"{turnout} models{where}", f"{turnout} predict --help", f"{turnout} routes set --help"]


def _program(name: str) -> str:
    """How to call a program that was installed beside this Python."""
    beside = Path(sys.executable).with_name(name)
    if beside.exists() and shutil.which(name) != str(beside):
        return shlex.quote(str(_relative(beside)))
    return name


def _where(data: DataDir) -> str:
    return "" if data.root == DEFAULT_DATA_DIR.absolute() else f" --data-dir {shlex.quote(str(_relative(data.root)))}"


def _relative(path: Path) -> Path:
    """The path as one would type it here."""
    return Path(os.path.relpath(path)) if path.is_relative_to(Path.cwd()) else path
