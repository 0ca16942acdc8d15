from pathlib import Path

import pytest

from services.batcher.config import BatcherConfig
from services.chassis.config import ServiceConfig
from services.cli.plan import MAX_REPLICAS, Place, Ports, plan
from services.feature_proxy.config import FeatureProxyConfig
from services.router.config import RouterConfig
from services.runtime.config import RuntimeConfig
from services.shadow.config import ShadowConfig

PLACE = Place(Path("/d"), Path("/r"), "file:///d/models", "127.0.0.1:2379")
CONFIGS: dict[str, type[ServiceConfig]] = {
    "router": RouterConfig,
    "batcher": BatcherConfig,
    "runtime": RuntimeConfig,
    "feature_proxy": FeatureProxyConfig,
    "shadow": ShadowConfig,
}


def addresses(offset: int | None, replicas: int) -> list[str]:
    return [address for each in plan(PLACE, Ports(offset), replicas) for address in each.addresses.values()]


def test_the_first_pod_and_the_rest_have_the_documented_ports() -> None:
    ports = {int(address.rpartition(":")[2]) for address in addresses(0, 1)}

    assert ports == {8000, 8001, 8002, 8005, 8500, 8501, 8101, 8102, 8112, 8121, 8122, 8131, 8132}


def test_no_two_processes_share_an_address() -> None:
    used = addresses(0, MAX_REPLICAS)

    assert len(set(used)) == len(used)


def test_an_offset_moves_every_port() -> None:
    moved = [int(address.rpartition(":")[2]) - 500 for address in addresses(500, 2)]

    assert moved == [int(address.rpartition(":")[2]) for address in addresses(0, 2)]


def test_without_an_offset_every_port_is_any_free_one() -> None:
    assert {address.rpartition(":")[2] for address in addresses(None, 2)} == {"0"}


def test_the_router_starts_last_and_so_stops_first() -> None:
    assert [each.name for each in plan(PLACE, Ports(0), 2)] == [
        "feature-proxy",
        "shadow",
        "runtime-0",
        "batcher-0",
        "runtime-1",
        "batcher-1",
        "router",
    ]


@pytest.mark.parametrize("name", [each.name for each in plan(PLACE, Ports(0), 2)])
def test_every_service_takes_its_settings(name: str) -> None:
    planned = next(each for each in plan(PLACE, Ports(0), 2) if each.name == name)

    config = CONFIGS[planned.service].load(f"TURNOUT_{planned.service.upper()}_", planned.environment())

    assert config.parent_death
