from pathlib import Path

import pytest

from services.chassis.etcd import find_etcd
from services.chassis.etcd.server import reason


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (
            '{"level":"info","msg":"up"}\n{"level":"fatal","msg":"failed","error":"disk is full"}\n',
            "failed: disk is full",
        ),
        ('{"level":"info","msg":"up"}\n\n/opt/etcd: exec format error\n', "/opt/etcd: exec format error"),
        ('{"level":"info","msg":"up"}\n', "no reason given"),
        ("", "no reason given"),
    ],
)
def test_the_log_tells_why_etcd_ended(log: str, expected: str) -> None:
    assert reason(log) == expected


def test_etcd_is_taken_from_the_path_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert find_etcd() == program


def test_etcd_is_found_in_the_python_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_etcd()

    assert found is not None
    assert found.parent.name == "etcdbin"
