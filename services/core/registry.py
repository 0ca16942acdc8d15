"""endpoints/, services/ and status/ in etcd: what services say of themselves, under their lease."""

from typing import Literal

from services.core.names import ModelName, Version
from services.core.spec import Spec

ServiceState = Literal["starting", "ready", "not_ready", "draining"]


class Endpoint(Spec):
    """endpoints/MODEL/VERSION/REPLICA: one replica of a model version. Signatures are fetched over the link."""

    address: str  # host:port of the batcher's link
    local_socket: str = ""  # the same link as a Unix socket, for callers on the same host
    host: str = ""  # id of the host, so that a caller knows whether local_socket is its own
    digest: str
    signature_hash: str
    slots: int  # batches at once
    max_batch_rows: int


class ServiceRecord(Spec):
    """services/NAME/INSTANCE: one process."""

    address: str = ""  # where its peers reach it
    local_socket: str = ""
    host: str = ""
    metrics: str = ""  # host:port of /metrics
    state: ServiceState = "starting"
    pid: int = 0


class InventoryVersion(Spec):
    """One version a pod knows, in Triton's words for its state."""

    state: Literal["UNKNOWN", "READY", "UNAVAILABLE", "LOADING", "UNLOADING"]
    reason: str = ""
    digest: str = ""


class Inventory(Spec):
    """status/runtime/INSTANCE/inventory: every version of every model that a pod's repository holds or lacks."""

    pool: str = "default"
    models: dict[ModelName, dict[Version, InventoryVersion]] = {}


class RouterStatus(Spec):
    """status/router/INSTANCE/routes: what a router accepted, and what it refused and why."""

    revision: int = 0
    accepted: dict[str, int] = {}  # key -> mod revision
    refused: dict[str, str] = {}  # key -> reason
