"""What a host and its control groups have to spare."""

from pathlib import Path

import pytest

from services.runtime.memory import free_bytes, in_words


class Host:
    """Files as the kernel shows them."""

    def __init__(self, folder: Path, available_kb: int, group: str) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroups"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "meminfo").write_text(f"MemTotal: 99999 kB\nMemAvailable:   {available_kb} kB\n")
        (self.proc / "self" / "cgroup").write_text(f"0::{group}\n")

    def group(self, name: str, limit: str, used: int, inactive: int = 0) -> None:
        folder = self.cgroups / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive}\n")

    def free(self) -> int:
        return free_bytes(self.proc, self.cgroups)


def test_without_control_groups_the_host_counts(tmp_path: Path) -> None:
    assert Host(tmp_path, 1000, "/").free() == 1000 << 10


def test_the_tightest_group_counts_and_files_that_are_not_used_make_room(tmp_path: Path) -> None:
    host = Host(tmp_path, 1000, "/pods/one")
    host.group("pods/one", "max", 5)
    host.group("pods", "5000", 3000, inactive=500)

    assert host.free() == 2500


def test_a_group_over_its_limit_has_less_than_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path, 1000, "/")
    host.group("", "100", 150)

    assert host.free() == -50


def test_where_nobody_says_nothing_holds_up(tmp_path: Path) -> None:
    assert free_bytes(tmp_path, tmp_path) > 1 << 60


def test_this_host_has_some(tmp_path: Path) -> None:
    assert 0 < free_bytes() < 1 << 60


@pytest.mark.parametrize(("size", "words"), [(3 << 29, "1.5 GiB"), (340 << 20, "340 MiB"), (-5, "0 MiB")])
def test_sizes_are_said_in_words(size: int, words: str) -> None:
    assert in_words(size) == words
