"""endpoints/, services/ and status/ in etcd: what services say of themselves, under their lease."""

from typing import Literal

from pydantic import ConfigDict

from services.core.names import ModelName, Version
from services.core.spec import Spec

ServiceState = Literal["starting", "ready", "not_ready", "draining"]


class Record(Spec):
    """Written by a service, not by a person: fields of a later release are ignored, so that releases may mix."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Endpoint(Record):
    """endpoints/MODEL/VERSION/REPLICA: one replica of a model version. Signatures are fetched over the link."""

    address: str  # host:port of the batcher's link
    local_socket: str = ""  # the same link as a Unix socket, for callers on the same host
    host: str = ""  # id of the host, so that a caller knows whether local_socket is its own
    digest: str
    signature_hash: str
    slots: int  # batches at once
    max_batch_rows: int


class ServiceRecord(Record):
    """services/NAME/INSTANCE: one process."""

    address: str = ""  # where its peers, or the router's gRPC callers, reach it
    rest: str = ""  # host:port of the router's REST API
    management: str = ""  # host:port of the router's REST API for operators
    local_socket: str = ""
    host: str = ""
    metrics: str = ""  # host:port of /metrics
    state: ServiceState = "starting"
    pid: int = 0


def dial_address(record: Endpoint | ServiceRecord, host: str) -> str:
    """Where a process on `host` dials: the record's Unix socket ("unix:/path") on its own host, else host:port."""
    if record.local_socket and record.host == host:
        return f"unix:{record.local_socket}"
    return record.address


State = Literal["UNKNOWN", "READY", "UNAVAILABLE", "LOADING", "UNLOADING"]


class InventoryInstance(Record):
    """One worker process of a version."""

    state: str  # LOADING, READY, DRAINING, BACKOFF or FAILED
    restarts: int = 0


class InventoryVersion(Record):
    """One version a pod knows, in Triton's words for its state."""

    state: State
    reason: str = ""
    digest: str = ""
    framework: str = ""
    update: Literal["", "LOADING", "UNAVAILABLE"] = ""  # of what is to take the place of what is READY
    failures: int = 0  # of a load, or of its update's, in a row
    instances: dict[str, InventoryInstance] = {}  # by name


class Inventory(Record):
    """status/runtime/INSTANCE/inventory: every version of every model that a pod's repository holds or lacks."""

    pool: str = "default"
    models: dict[ModelName, dict[Version, InventoryVersion]] = {}
    specs: dict[ModelName, int] = {}  # revision of models/MODEL that its versions are by, as this pod has come so far
    notes: dict[ModelName, tuple[str, ...]] = {}  # what of a model's config.pbtxt is not done
    faults: dict[ModelName, str] = {}  # why a model's repository cannot be read now; its versions are the last known


class ConfigStatus(Record):
    """status/NAME/INSTANCE/…: which keys a service goes by, and which values it refused and why."""

    revision: int = 0  # of etcd, when this was judged
    accepted: dict[str, int] = {}  # key -> mod revision
    refused: dict[str, str] = {}  # key -> reason; the last good value stays
    refused_at: dict[str, int] = {}  # key -> mod revision of the value that was refused
