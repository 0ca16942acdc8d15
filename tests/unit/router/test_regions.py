"""Shared memory that callers register: what is named, bounded, cut off, and let go of."""

import os
from pathlib import Path

import pytest

from services.core.errors import AlreadyExistsError, InvalidRequestError, NotFoundError, UnimplementedError
from services.router.regions import Regions


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    (tmp_path / "tensors").write_bytes(bytes(range(100)))
    return Regions(offered=True, folder=tmp_path)


def test_a_part_is_read_and_written_where_it_lies(regions: Regions, tmp_path: Path) -> None:
    regions.register("r", "/tensors", 10, 50)
    region = regions.named("r")
    region.write(2, b"abc")

    assert region.read(1, 5) == b"\x0babc\x0f"
    assert (tmp_path / "tensors").read_bytes()[10:16] == b"\x0a\x0babc\x0f"


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "..",
        "/..",
        "/../etc/passwd",
        "//tensors",
        "a/b",
        "/turnout-arena",
        ".hidden",
        "nul\0",
        "/opt/x",
        "x" * 300,
    ],
)
def test_a_key_is_a_name_and_never_a_path(regions: Regions, key: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not the name of a shared memory object"):
        regions.register("r", key, 0, 1)


def test_what_is_no_shared_memory_is_refused(regions: Regions, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for key in ("link", "folder", "pipe", "nothing"):
        with pytest.raises(InvalidRequestError, match=key):
            regions.register("r", key, 0, 1)


@pytest.mark.parametrize(("offset", "size"), [(0, 101), (100, 1), (1 << 62, 1 << 62), (-1, 1), (0, 0), (0, -5)])
def test_offset_and_size_lie_within_the_object(regions: Regions, offset: int, size: int) -> None:
    with pytest.raises(InvalidRequestError, match="region 'r'"):
        regions.register("r", "tensors", offset, size)


def test_parts_of_a_region_lie_within_it(regions: Regions) -> None:
    regions.register("r", "tensors", 10, 50)
    region = regions.named("r")
    region.check_part(40, 10)

    with pytest.raises(InvalidRequestError, match="has 50 bytes; shared_memory_offset 41"):
        region.check_part(41, 10)


def test_memory_that_is_cut_off_is_an_error_and_no_death(regions: Regions, tmp_path: Path) -> None:
    regions.register("r", "tensors", 0, 100)
    region = regions.named("r")
    os.truncate(tmp_path / "tensors", 30)

    with pytest.raises(InvalidRequestError, match="has shrunk: 10 of 40"):
        region.read(20, 40)
    with pytest.raises(InvalidRequestError, match="has shrunk"):
        region.write(20, bytes(40))
    assert (tmp_path / "tensors").stat().st_size == 30


def test_names_come_and_go(regions: Regions) -> None:
    regions.register("r", "tensors", 0, 10)
    regions.register("s", "tensors", 10, 10)
    with pytest.raises(AlreadyExistsError, match="'r' is registered"):
        regions.register("r", "tensors", 0, 10)
    held = regions.named("r")
    regions.unregister("r")
    regions.unregister("r")

    assert [region.name for region in regions.registered()] == ["s"]
    assert held.read(1, 2) == b"\x01\x02"  # a request that has it is not disturbed
    with pytest.raises(NotFoundError, match="no shared memory region 'r'"):
        regions.registered("r")
    regions.unregister()
    assert regions.registered() == []


def test_it_is_off_unless_switched_on(tmp_path: Path) -> None:
    regions = Regions(offered=False, folder=tmp_path)
    for act in (
        lambda: regions.register("r", "tensors", 0, 1),
        regions.unregister,
        regions.registered,
        lambda: regions.named("r"),
    ):
        with pytest.raises(UnimplementedError, match="TURNOUT_ROUTER_SYSTEM_SHARED_MEMORY=true"):
            act()
