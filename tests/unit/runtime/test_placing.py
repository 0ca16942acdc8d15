"""Where an instance runs."""

from pathlib import Path
from typing import Any

import pytest

from services.core.model_spec import Instances
from services.core.spec import BadValueError
from services.runtime.placing import Host, Place, numa_nodes, parse_list, place, quota, share, visible_gpus

CPUS = frozenset(range(4))
BARE = Host((), CPUS, {0: CPUS}, 4)
GPUS = Host(("4", "GPU-aa"), CPUS, {0: frozenset({0, 1}), 1: frozenset({2, 3}), 2: frozenset()}, 4)


def instances(**fields: Any) -> Instances:
    return Instances.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "host", "expected"),
    [
        ({}, BARE, Place("cpu", "")),
        ({"kind": "cpu"}, GPUS, Place("cpu", "")),
        ({}, GPUS, Place("auto")),
        ({"kind": "gpu"}, GPUS, Place("cuda")),
        ({"kind": "gpu", "gpus": (1,)}, GPUS, Place("cuda", "GPU-aa")),
        ({"gpus": ("MIG-1a/2/0",)}, GPUS, Place("cuda", "MIG-1a/2/0")),
        ({"numa_node": 1}, GPUS, Place("auto", None, (2, 3))),
        ({"kind": "gpu"}, BARE, Place(fault="instances asks for kind gpu, and this pod sees no GPU")),
        ({"gpus": (0,)}, BARE, Place(fault="instances names gpus, and this pod sees no GPU")),
        ({"gpus": (2,)}, GPUS, Place(fault="instances.gpus names 2; this pod sees 2, numbered from 0")),
        ({"numa_node": 3}, BARE, Place(fault="instances.numa_node is 3; NUMA nodes of this pod: 0")),
        ({"numa_node": 2}, GPUS, Place(fault="instances.numa_node is 2; NUMA nodes of this pod: 0, 1, 2")),
    ],
)
def test_a_place_is_what_the_spec_asks_for_or_says_why_not(fields: dict[str, Any], host: Host, expected: Place) -> None:
    assert place(instances(**fields), 0, host) == expected


def test_named_gpus_go_round() -> None:
    spec = instances(gpus=(0, 1))

    assert [place(spec, number, GPUS).visible_gpus for number in range(3)] == ["4", "GPU-aa", "4"]


def test_gpus_for_the_processor_are_refused() -> None:
    with pytest.raises(BadValueError, match="gpus are named, and kind is cpu"):
        Instances.parse(b'{"kind": "cpu", "gpus": [0]}')


@pytest.mark.parametrize(
    ("cores", "count", "threads"), [(2, 1, 1), (16, 1, 15), (16, 4, 3), (16, 40, 1), (0.5, 1, 1), (16, 0, 15)]
)
def test_instances_share_all_cores_but_one(cores: float, count: int, threads: int) -> None:
    assert share(cores, count) == threads


@pytest.mark.parametrize(
    ("visible", "expected"),
    [(None, ("0", "1")), ("1", ("1",)), ("1, GPU-a", ("1", "GPU-a")), ("", ()), ("0,-1,1", ("0",))],
)
def test_gpus_are_those_that_cuda_would_see(tmp_path: Path, visible: str | None, expected: tuple[str, ...]) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert visible_gpus(tmp_path, environ) == expected


def test_a_host_without_devices_has_no_gpu_whatever_its_environment_says(tmp_path: Path) -> None:
    assert visible_gpus(tmp_path, {"CUDA_VISIBLE_DEVICES": "0"}) == ()


def test_numa_nodes_have_the_cores_that_are_ours(tmp_path: Path) -> None:
    for number, cpus in enumerate(("0-3\n", "4-5,8\n")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(cpus)

    assert numa_nodes(tmp_path, frozenset({1, 2, 8})) == {0: frozenset({1, 2}), 1: frozenset({8})}
    assert numa_nodes(tmp_path / "none", frozenset({1})) == {}


@pytest.mark.parametrize(("text", "expected"), [("0-3,8\n", [0, 1, 2, 3, 8]), ("5\n", [5]), ("\n", [])])
def test_a_kernels_list_is_read(text: str, expected: list[int]) -> None:
    assert parse_list(text) == expected


@pytest.mark.parametrize(("text", "cores"), [("max 100000\n", None), ("150000 100000\n", 1.5), ("50000\n", 0.5)])
def test_a_quota_is_read_as_cores(text: str, cores: float | None) -> None:
    assert quota(text) == cores


def test_this_host_has_cores() -> None:
    host = Host.look()

    assert 0 < host.cores <= len(host.cpus)
