"""What a router is told when it starts."""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from services.chassis.config import Address, OptionalAddress, ServiceConfig
from services.chassis.listening import is_loopback
from services.chassis.tls.settings import ListenerTls

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _checked_source(source: str) -> str:
    """Where keys may come from: https://…, http:// on this machine, or a file. Raises ValueError."""
    parts = urlsplit(source)
    if parts.scheme == "https" or "://" not in source or (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        return source
    raise ValueError(f"{source!r} is no source of keys: give https://… or the path of a file")


class RouterConfig(ServiceConfig):
    """Listeners and bounds; what is routed where comes from etcd."""

    grpc_address: Address = "127.0.0.1:8001"
    rest_address: Address = "127.0.0.1:8000"
    tfs_grpc_address: OptionalAddress = ""  # TensorFlow Serving's gRPC, whose port is 8500; empty = not offered
    tfs_rest_address: OptionalAddress = ""  # rest_address by another port, TensorFlow Serving's 8501; empty = not
    kserve_status: bool = False  # GET /v1/models/MODEL answers as KServe does, else as TensorFlow Serving
    metrics_address: Address = "127.0.0.1:8002"
    # Triton's nv_inference_* of all replicas in /metrics too: for one router whose batchers nobody scrapes.
    fleet_metrics: bool = False
    management_address: OptionalAddress = "127.0.0.1:8005"  # host:port of the REST API for operators; empty = none
    management_grpc_address: OptionalAddress = ""  # host:port of the gRPC API for operators; empty = none
    public_management: bool = False  # may callers' own listeners load, unload and change settings too?
    load_timeout_s: float = Field(default=300, gt=0)  # of a load or unload; then what was before is put back
    uploads: Path | None = None  # folder for files that come with a load, seen by every pod at the same path
    tls: ListenerTls = ListenerTls()
    native_front: bool = True  # pygrpc-native for ModelInfer; off = grpc.aio for everything
    reuse_port: bool = False  # several router processes on one port
    max_in_flight: int = Field(default=8192, ge=1)  # requests; past it a call is refused before it is parsed
    max_concurrent_streams: int = Field(default=1024, ge=1)  # of one connection
    max_rest_connections: int = Field(default=8192, ge=1)  # at once; further ones are refused
    max_message_bytes: int = Field(default=64 << 20, ge=1)
    max_mirror_bytes: int = Field(default=32 << 20, ge=0)  # queued for a comparator; past it mirrors are dropped
    max_record_bytes: int = Field(default=32 << 20, ge=0)  # queued for a recorder; past it records are dropped
    shared_memory_bytes: int = Field(default=256 << 20, ge=0)  # for large tensors to each pod on this host; 0 = none
    system_shared_memory: bool = False  # may callers on this host register memory of theirs for tensors?
    retry_budget: float = Field(default=0.1, ge=0, le=1)  # retries that each answered request earns; 0 = none
    # May anybody use what says nothing of it? auto = while every listener but that of metrics is on this machine only.
    anonymous: Literal["auto", "allow", "refuse"] = "auto"
    jwt_issuer: str = ""  # whose JWTs are taken (`iss`); empty = none are
    jwt_audience: str = ""  # that they must be for (`aud`)
    jwt_keys: Annotated[str, AfterValidator(_checked_source)] = ""  # the issuer's JWK set: a file, or https://…
    jwt_leeway_s: float = Field(default=30, ge=0, le=600)  # that clocks may differ
    slow_ms: float = Field(default=1000, ge=0)  # requests that took longer are kept as traces
    trace_ratio: float = Field(default=0, ge=0, le=1)  # of requests that are kept as traces

    @model_validator(mode="after")
    def _suits_several_routers(self) -> Self:
        if self.system_shared_memory and self.reuse_port:
            raise ValueError("system_shared_memory needs a router of its own: several on one port do not share regions")
        if self.management_grpc_address and self.reuse_port:
            raise ValueError("management_grpc_address cannot be shared by several routers: leave reuse_port off")
        return self

    @model_validator(mode="after")
    def _tokens_are_whole(self) -> Self:
        given = (self.jwt_issuer, self.jwt_audience, self.jwt_keys)
        if any(given) and not all(given):
            raise ValueError("jwt_issuer, jwt_audience and jwt_keys go together: give all three, or none")
        return self

    def is_open(self) -> bool:
        """Whether anybody may use what says nothing of it."""
        if self.anonymous != "auto":
            return self.anonymous == "allow"
        fields = (name for name in type(self).model_fields if name.endswith("_address") and name != "metrics_address")
        return all(is_loopback(address) for name in fields if (address := getattr(self, name)))
