"""The runtime, put together."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.chassis.app import App
from services.chassis.etcd import Mirror
from services.core import keys
from services.runtime.config import RuntimeConfig
from services.runtime.control import SOCKET, Control, run_folder, serve_control
from services.runtime.gpu_metrics import export_gpus
from services.runtime.hosting import hosting_of
from services.runtime.metrics import RuntimeMetrics
from services.runtime.placing import Host
from services.runtime.status import Status
from services.runtime.version_manager import VersionManager


@asynccontextmanager
async def build(config: RuntimeConfig, app: App) -> AsyncIterator[None]:
    """Supervise until left. Nothing is loaded before models/ and routes/ came from etcd or the snapshot."""
    control = Control(app.instance)
    status = Status(app.registration, app.instance)
    hosting = hosting_of(config)
    host = Host.look()
    export_gpus(host.gpus, app.registry)
    manager = VersionManager(config, app.etcd, control, status, RuntimeMetrics(app.registry), hosting, host)
    snapshot = config.data_dir / "runtime" / f"{config.run_dir.name}.snapshot"
    mirror = Mirror(app.etcd, [keys.MODELS, keys.ROUTES], manager.changed, snapshot=snapshot, log=app.log)

    async def begin() -> None:
        await mirror.loaded.wait()
        manager.loaded()

    socket = config.run_dir.absolute() / SOCKET
    with run_folder(config.run_dir):
        async with serve_control(control, socket) as address:
            app.log.info("listening", name="control", address=address)
            app.announce(local_socket=address)
            app.ready_when(manager.not_ready)
            app.on_drain(manager.drain)
            app.spawn(manager.run(), "versions")
            app.spawn(hosting.nursery.run(), "nursery")
            app.spawn(mirror.run(), "mirror")
            app.spawn(begin(), "begin")
            yield
