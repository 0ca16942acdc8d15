"""What the kernel tells of processes."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

from services.runtime.processes import Family, open_files, proportional_bytes, resident_bytes

GRANDCHILDREN = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[tuple[int, int]]:
    """A child of this process, and its own."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", GRANDCHILDREN], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.kill()


@pytest.mark.parametrize("make", [Family, lambda: Family(tells=False)], ids=["as here", "by looking at all"])
def test_a_family_has_children_and_theirs(make: Callable[[], Family], child: tuple[int, int]) -> None:
    first, second = child
    family = make()

    assert first in family.children(os.getpid())
    assert family.children(first) == family.below(first) == [second]
    assert {first, second} <= set(family.below(os.getpid()))
    assert family.below(second) == []


def test_memory_and_files_of_a_process_are_told() -> None:
    pid = os.getpid()
    before = open_files(pid)
    with tempfile.TemporaryFile(), tempfile.TemporaryFile():
        assert open_files(pid) == before + 2

    assert 1 << 20 < proportional_bytes(pid) <= resident_bytes(pid) * 1.5


def test_a_process_that_is_gone_has_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        pid = process.pid

    assert (resident_bytes(pid), proportional_bytes(pid), open_files(pid), Family().below(pid)) == (0, 0, 0, [])
