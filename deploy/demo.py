"""The demo for a mesh that runs elsewhere: ETCD_ENDPOINTS, ROUTER (its gRPC address), DATA (a folder they share).

The runtime's repository is DATA/models, and the feature proxy reads DATA/features.sqlite.
"""  # noqa: INP001 - a script, not a package

import asyncio
import os
from pathlib import Path

from services.chassis.etcd import EtcdClient
from services.cli.client import GrpcClient
from services.cli.data_dir import DataDir
from services.cli.demo.keys import write_demo
from services.cli.demo.prepare import columns, is_prepared, prepare
from services.cli.play import demonstrate, load_turns, raise_if_failed
from services.cli.progress import step
from services.cli.readiness import Readiness

READY_S = 180.0


async def main() -> None:
    """Train if need be, write the keys that are not there yet, wait until every version serves, and play."""
    data = DataDir(Path(os.environ["DATA"])).create()
    client = EtcdClient(os.environ["ETCD_ENDPOINTS"].split(","))
    try:
        if not is_prepared(data):
            with step("Training the demo's models") as show:
                await prepare(data, show)
        await write_demo(client, data.features, columns(data))
        async with GrpcClient(os.environ["ROUTER"]) as router:
            with step("Waiting for every version") as show:
                await Readiness(client, router, children=()).wait(show, READY_S)
        raise_if_failed(await demonstrate(os.environ["ROUTER"], client, load_turns(data)))
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
