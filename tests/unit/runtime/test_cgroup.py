"""Control groups, in a folder that stands for the kernel's: what is written where, and when there are none."""

import os
import shutil
from pathlib import Path

import pytest

from services.core.model_spec import Limits
from services.runtime.cgroup import Cgroups

LIMITS = Limits(max_memory_bytes=1 << 30, max_processes=4)


class Tree:
    """A tree of cgroup v2 whose group `pod` is ours."""

    def __init__(self, folder: Path, controllers: str = "cpu memory pids", members: str = "") -> None:
        self.root = folder / "tree"
        self.own = folder / "own"
        self.pod = self.root / "pod"
        self.pod.mkdir(parents=True)
        self.own.write_text("0::/pod\n")
        (self.pod / "cgroup.controllers").write_text(f"{controllers}\n")
        (self.pod / "cgroup.subtree_control").write_text("\n")
        (self.pod / "cgroup.procs").write_text(members)

    def find(self) -> Cgroups | None:
        return Cgroups.find(self.root, self.own)


def test_our_group_is_divided_and_we_move_into_a_leaf(tmp_path: Path) -> None:
    tree = Tree(tmp_path, members=f"{os.getpid()}\n")
    found = tree.find()

    assert found is not None
    assert found.folder == tree.pod
    assert (tree.pod / "turnout-runtime" / "cgroup.procs").read_text() == str(os.getpid())
    assert (tree.pod / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_a_group_that_passes_its_controllers_on_already_is_left_as_it_is(tmp_path: Path) -> None:
    tree = Tree(tmp_path, members="1\n2\n")
    (tree.pod / "cgroup.subtree_control").write_text("memory pids\n")

    assert tree.find() is not None
    assert not (tree.pod / "turnout-runtime").exists()


@pytest.mark.parametrize(("controllers", "members"), [("cpu", ""), ("memory", ""), ("memory pids", "1\n2\n")])
def test_a_group_that_cannot_be_divided_is_not_used(tmp_path: Path, controllers: str, members: str) -> None:
    assert Tree(tmp_path, controllers, members).find() is None


@pytest.mark.parametrize("own", ["", "4:memory:/pod\n", "0::/gone\n"])
def test_a_host_without_cgroup_v2_has_none(tmp_path: Path, own: str) -> None:
    tree = Tree(tmp_path)
    tree.own.write_text(own)

    assert tree.find() is None


def test_a_worker_has_a_group_with_its_limits(tmp_path: Path) -> None:
    group = Cgroups(tmp_path).make("w-1", LIMITS)
    group.add(123)
    folder = tmp_path / "w-1"

    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert written == {
        "memory.max": "1073741824", "pids.max": "1024", "memory.swap.max": "0", "memory.oom.group": "1",
        "cgroup.procs": "123",
    }  # fmt: skip
    assert not group.was_out_of_memory


def test_a_group_tells_that_the_kernel_killed_in_it(tmp_path: Path) -> None:
    group = Cgroups(tmp_path).make("w-1", Limits())
    events = tmp_path / "w-1" / "memory.events"

    assert (tmp_path / "w-1" / "memory.max").read_text() == "max"
    events.write_text("oom 0\noom_kill 0\n")
    assert not group.was_out_of_memory
    events.write_text("oom 3\noom_kill 1\n")
    assert group.was_out_of_memory


async def test_the_end_of_a_group_that_is_gone_is_no_fault(tmp_path: Path) -> None:
    group = Cgroups(tmp_path).make("w-1", LIMITS)
    shutil.rmtree(tmp_path / "w-1")
    await group.end()

    assert not (tmp_path / "w-1").exists()
