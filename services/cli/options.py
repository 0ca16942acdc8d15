"""Options that several commands share, and what they come to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from services.chassis.etcd import EtcdClient, EtcdUnavailableError, split_endpoints
from services.cli.data_dir import DataDir, Running
from services.cli.errors import CliError
from services.cli.plan import ETCD_PORT, HOST
from services.cli.security import etcd_client
from services.core import keys

DEFAULT_DATA_DIR = Path(".turnout")
_ETCD_TIMEOUT_S = 5.0
_DEFAULT_GRPC, _DEFAULT_REST = f"{HOST}:8001", f"{HOST}:8000"

DataDirOption = Annotated[
    Path, typer.Option("--data-dir", envvar="TURNOUT_DATA_DIR", help="Folder of a mesh that `turnout up` runs.")
]
EtcdOption = Annotated[
    str,
    typer.Option(
        "--etcd",
        envvar="ETCD_ENDPOINTS",
        help="etcd as HOST:PORT[,HOST:PORT…]; default: that of the mesh in --data-dir.",
    ),
]
PrefixOption = Annotated[str, typer.Option("--etcd-prefix", envvar="ETCD_PREFIX", help="Prefix of all keys in etcd.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


class Target:
    """The mesh that a command is about: given by options, else the one that runs in the data folder."""

    def __init__(self, data_dir: Path, etcd: str = "", prefix: str = "") -> None:
        self._data = DataDir(data_dir)
        running = self._data.read()
        self.running: Running | None = running
        self.etcd = etcd or (running.etcd if running else f"{HOST}:{ETCD_PORT}")
        self.prefix = prefix or (running.etcd_prefix if running else keys.PREFIX)

    def router(self, given: str, setting: str) -> str:
        """The router's address for GRPC_ADDRESS or REST_ADDRESS, host:port."""
        found = self.running.address("router", setting) if self.running else None
        return given or found or (_DEFAULT_GRPC if setting == "GRPC_ADDRESS" else _DEFAULT_REST)

    @asynccontextmanager
    async def open_etcd(self) -> AsyncIterator[EtcdClient]:
        """A client of its etcd, as services.cli.security says."""
        if not split_endpoints(self.etcd):
            raise CliError("--etcd names no endpoint: expected HOST:PORT")
        client = etcd_client(self.etcd, self.prefix, timeout_s=_ETCD_TIMEOUT_S)
        try:
            yield client
        except EtcdUnavailableError as error:
            if "Connection refused" not in str(error):
                raise
            raise CliError(f"no etcd answers at {self.etcd}: is a mesh running (`turnout up`)?") from None
        finally:
            await client.close()
