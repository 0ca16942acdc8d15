"""A mesh on one machine: which processes, at which addresses, with which settings. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.core import keys

HOST = "127.0.0.1"
ETCD_PORT = 2379
MAX_REPLICAS = 16
_ROUTER_REST, _ROUTER_GRPC, _ROUTER_METRICS, _ROUTER_MANAGEMENT = 8000, 8001, 8002, 8005
_TFS_GRPC, _TFS_REST = 8500, 8501  # of the router too, where TensorFlow Serving's callers look for them
_BATCHER_LINK, _BATCHER_METRICS, _RUNTIME_METRICS = 8101, 8102, 8112
_PROXY_LINK, _PROXY_METRICS = 8121, 8122
_SHADOW_LINK, _SHADOW_METRICS = 8131, 8132
_DRAIN_S = 5  # shorter than a fleet's: someone waits at the terminal


@dataclass(frozen=True, slots=True)
class Planned:
    """One process: `python -m services.SERVICE` with these settings."""

    name: str  # as in messages and of its log: batcher-1
    service: str  # as in services/: feature_proxy
    addresses: Mapping[str, str]  # setting -> host:port that it listens on
    settings: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        prefix = f"TURNOUT_{self.service.upper()}_"
        return {prefix + name: value for name, value in {**self.settings, **self.addresses}.items()}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a mesh keeps its things. `run` is for sockets, so its path is short."""

    data: Path
    run: Path
    repository: str  # URL of the model repository
    etcd: str  # comma-separated host:port
    etcd_prefix: str = keys.PREFIX


class Ports:
    """The documented ports, all moved by `offset`; None = any free ones."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    @property
    def are_known(self) -> bool:
        return self._offset is not None

    def at(self, port: int) -> str:
        return f"{HOST}:{0 if self._offset is None else port + self._offset}"


def plan(place: Place, ports: Ports, replicas: int = 1) -> list[Planned]:
    """Every process of a mesh, in the order of their start; the reverse is the order of their stop."""
    proxy = {"LINK_ADDRESS": ports.at(_PROXY_LINK), "METRICS_ADDRESS": ports.at(_PROXY_METRICS)}
    shadow = {"LINK_ADDRESS": ports.at(_SHADOW_LINK), "METRICS_ADDRESS": ports.at(_SHADOW_METRICS)}
    router = {
        "GRPC_ADDRESS": ports.at(_ROUTER_GRPC),
        "REST_ADDRESS": ports.at(_ROUTER_REST),
        "METRICS_ADDRESS": ports.at(_ROUTER_METRICS),
        "MANAGEMENT_ADDRESS": ports.at(_ROUTER_MANAGEMENT),
    }
    if ports.are_known:  # another server's ports are of use to those only who know them
        router |= {"TFS_GRPC_ADDRESS": ports.at(_TFS_GRPC), "TFS_REST_ADDRESS": ports.at(_TFS_REST)}
    # All of it listens on this machine only, where Triton's clients find everything on the port that they know.
    alone = {"FLEET_METRICS": "true", "PUBLIC_MANAGEMENT": "true", "UPLOADS": str(place.data / "uploads")}
    return [
        _planned(place, "feature-proxy", "feature_proxy", proxy, {"LINK_SOCKET": str(place.run / "features.sock")}),
        _planned(place, "shadow", "shadow", shadow, {"LINK_SOCKET": str(place.run / "shadow.sock")}),
        *(process for number in range(replicas) for process in _pod(place, ports, number)),
        _planned(place, "router", "router", router, alone),
    ]


def _pod(place: Place, ports: Ports, number: int) -> list[Planned]:
    """A runtime and its batcher. Pod 0 has the documented ports; each further pod has three of the next ten."""
    link, batcher, runtime = _BATCHER_LINK, _BATCHER_METRICS, _RUNTIME_METRICS
    if number:
        link = _SHADOW_LINK + 10 * number
        batcher, runtime = link + 1, link + 2
    shared = {"RUN_DIR": str(place.run / f"pod-{number}")}
    return [
        _planned(
            place,
            f"runtime-{number}",
            "runtime",
            {"METRICS_ADDRESS": ports.at(runtime)},
            {**shared, "REPOSITORY": place.repository, "POOL": "default"},
        ),
        _planned(
            place,
            f"batcher-{number}",
            "batcher",
            {"LINK_ADDRESS": ports.at(link), "METRICS_ADDRESS": ports.at(batcher)},
            {**shared, "POD": f"pod-{number}"},
        ),
    ]


def _planned(
    place: Place, name: str, service: str, addresses: dict[str, str], settings: dict[str, str] | None = None
) -> Planned:
    common = {
        "ETCD_ENDPOINTS": place.etcd,
        "ETCD_PREFIX": place.etcd_prefix,
        "DATA_DIR": str(place.data / "state" / name),
        "PARENT_DEATH": "true",
        "DRAIN_S": str(_DRAIN_S),
    }
    return Planned(name, service, addresses, {**common, **(settings or {})})
