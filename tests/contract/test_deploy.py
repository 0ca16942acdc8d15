"""Images and the compose file name services, extras, settings and files that exist."""

import re
import tomllib
from pathlib import Path

import pytest

from services.batcher.config import BatcherConfig
from services.chassis.config import ServiceConfig
from services.feature_proxy.config import FeatureProxyConfig
from services.router.config import RouterConfig
from services.runtime.config import RuntimeConfig
from services.shadow.config import ShadowConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = (DEPLOY / "compose.yaml").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
CONFIGS: dict[str, type[ServiceConfig]] = {
    "router": RouterConfig,
    "batcher": BatcherConfig,
    "runtime": RuntimeConfig,
    "feature_proxy": FeatureProxyConfig,
    "shadow": ShadowConfig,
}


def blocks() -> dict[str, str]:
    """Service of the compose file -> its lines."""
    services = COMPOSE.partition("\nservices:\n")[2].partition("\nvolumes:\n")[0]
    parts = re.split(r"^  ([a-z-]+):$", services, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def environment(service: str) -> dict[str, str]:
    pairs = re.findall(r"^      (\w+): (\S.*)$", blocks()[service.replace("_", "-")], re.MULTILINE)
    return {key: value for key, value in pairs if key.startswith("TURNOUT_")}


def test_the_compose_file_is_in_plain_block_style() -> None:
    """What this reads with patterns is YAML: two spaces a level, no tabs, each key once in its block."""
    for line in COMPOSE.splitlines():
        assert re.fullmatch(r"(  )*(- )?\S.*|", line), line
        assert "\t" not in line
    for service, block in blocks().items():
        keys = re.findall(r"^    ([a-z_]+):", block, re.MULTILINE)
        assert len(keys) == len(set(keys)), service


def test_every_service_and_etcd_and_the_demo_are_there() -> None:
    expected = {"etcd", "demo", *(name.replace("_", "-") for name in CONFIGS)}

    assert set(blocks()) == expected


@pytest.mark.parametrize("service", CONFIGS)
def test_the_environment_of_a_service_is_its_settings(service: str) -> None:
    given, prefix = environment(service), f"TURNOUT_{service.upper()}_"

    assert given
    assert [variable for variable in given if not variable.startswith(prefix)] == []
    assert CONFIGS[service].load(prefix, given)


@pytest.mark.parametrize("block", blocks().values(), ids=blocks().keys())
def test_an_image_is_built_of_a_service_and_extras_that_exist(block: str) -> None:
    for service in re.findall(r"SERVICE: (\w+)", block):
        assert (ROOT / "services" / service / "__main__.py").is_file()
        assert service.replace("_", "-") in EXTRAS
    for extras in re.findall(r"EXTRAS: (\S+)", block):
        assert set(extras.split(",")) <= EXTRAS.keys()


def test_batcher_and_runtime_share_a_run_folder_on_a_volume() -> None:
    batcher, runtime = environment("batcher"), environment("runtime")

    assert batcher["TURNOUT_BATCHER_RUN_DIR"] == runtime["TURNOUT_RUNTIME_RUN_DIR"]
    for service in ("batcher", "runtime"):
        folders = re.findall(r"- run:(\S+)", blocks()[service])
        assert [batcher["TURNOUT_BATCHER_RUN_DIR"].startswith(folder) for folder in folders] == [True]


def test_every_volume_is_declared() -> None:
    used = {volume for block in blocks().values() for volume in re.findall(r"- ([a-z]+):/", block)}

    assert used == set(re.findall(r"^  ([a-z]+): \{\}$", COMPOSE.partition("\nvolumes:\n")[2], re.MULTILINE))


def test_the_image_copies_what_exists_and_is_not_ignored() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
        for source in line.split()[:-1]
    ]

    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source


def test_the_image_runs_as_somebody_who_is_not_root() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    last = dockerfile.rpartition("\nFROM ")[2]

    assert re.findall(r"^USER (\w+)$", last, re.MULTILINE) == ["turnout"]
    assert "useradd" in last
