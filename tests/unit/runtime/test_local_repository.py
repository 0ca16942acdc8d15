"""A model repository on disk."""

import os
from pathlib import Path

import pytest

from services.runtime.local_repository import LocalRepository, path_of
from services.runtime.source import Artifact, BadRepositoryError


def put(file: Path, content: bytes = b"x") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def versions(root: Path, model: str = "m", *, links_outside: bool = False) -> dict[str, Artifact]:
    return LocalRepository(root, links_outside=links_outside).scan(model).versions


@pytest.mark.parametrize(
    ("url", "expected"),
    [("file:///srv/models", "/srv/models"), ("/srv/models", "/srv/models"), ("file:///a%20b", "/a b")],
)
def test_a_repository_is_a_path_or_a_file_url(url: str, expected: str) -> None:
    assert path_of(url) == Path(expected)


def test_a_file_url_of_another_host_is_refused() -> None:
    with pytest.raises(BadRepositoryError):
        path_of("file://host/m")


def test_versions_are_decimal_folders_with_files_and_the_rest_is_told(tmp_path: Path) -> None:
    for name in ("1/model.onnx", "10/deep/er/model.onnx", "2.tmp/model.onnx", "latest/model.onnx", "007/model.onnx"):
        put(tmp_path / "m" / name)
    (tmp_path / "m" / "3").mkdir()
    put(tmp_path / "m" / "4" / ".model.onnx.Xy12")
    put(tmp_path / "m" / "5" / "model.onnx.part")
    put(tmp_path / "m" / "6", b"a file")

    found = LocalRepository(tmp_path, links_outside=False).scan("m")

    assert set(found.versions) == {"1", "10"}
    assert [stat.name for stat in found.versions["10"].fingerprint] == ["deep/er/model.onnx"]
    assert found.ignored == ("007", "6", "latest")


def test_a_models_own_folder_is_a_repository_too(tmp_path: Path) -> None:
    put(tmp_path / "m" / "1" / "model.onnx")

    assert set(versions(tmp_path / "m")) == {"1"}
    assert versions(tmp_path / "m", "other") == {}


def test_a_missing_repository_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        versions(tmp_path / "unmounted")


def test_a_fingerprint_changes_with_content_that_keeps_its_size_and_time(tmp_path: Path) -> None:
    file = put(tmp_path / "m" / "1" / "model.onnx", b"one")
    before = versions(tmp_path)["1"]
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    while versions(tmp_path)["1"] == before:  # the kernel's clock may not have moved yet
        file.write_bytes(b"two")
        os.utime(file, ns=times)

    assert versions(tmp_path)["1"] != before


def test_links_are_followed_within_the_repository(tmp_path: Path) -> None:
    put(tmp_path / "shared" / "run-42" / "model.onnx", b"linked")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "1").symlink_to("../shared/run-42")
    put(tmp_path / "m" / "2" / "labels.txt")
    (tmp_path / "m" / "2" / "model.onnx").symlink_to("../../shared/run-42/model.onnx")
    found = versions(tmp_path)

    assert {version: artifact.fault for version, artifact in found.items()} == {"1": "", "2": ""}
    assert b"".join(found["2"].folder.chunks("model.onnx")) == b"linked"


def test_a_link_that_leads_out_is_refused_unless_the_operator_allows_it(tmp_path: Path) -> None:
    secret = put(tmp_path / "elsewhere" / "secret")
    put(tmp_path / "models" / "m" / "1" / "model.onnx")
    (tmp_path / "models" / "m" / "1" / "weights.bin").symlink_to(secret)
    (tmp_path / "models" / "m" / "2").symlink_to(secret.parent)
    put(tmp_path / "models" / "m" / "3" / "model.onnx")
    refused, allowed = versions(tmp_path / "models"), versions(tmp_path / "models", links_outside=True)

    assert "weights.bin leads to" in refused["1"].fault
    assert "TURNOUT_RUNTIME_LINKS_OUTSIDE" in refused["2"].fault
    assert refused["3"].fault == ""
    assert [stat.name for stat in allowed["1"].fingerprint] == ["model.onnx", "weights.bin"]


def test_a_link_that_comes_after_the_look_is_refused_too(tmp_path: Path) -> None:
    secret = put(tmp_path / "elsewhere" / "secret")
    file = put(tmp_path / "models" / "m" / "1" / "model.onnx")
    artifact = versions(tmp_path / "models")["1"]
    file.unlink()
    file.symlink_to(secret)

    with pytest.raises(OSError, match="leads out of the repository"):
        list(artifact.folder.chunks("model.onnx"))


def test_folders_that_hold_themselves_end(tmp_path: Path) -> None:
    put(tmp_path / "m" / "1" / "model.onnx")
    (tmp_path / "m" / "1" / "again").symlink_to(".")

    assert "folders in each other" in versions(tmp_path)["1"].fault


def test_a_pipe_is_no_file_and_nobody_waits_for_it(tmp_path: Path) -> None:
    put(tmp_path / "m" / "1" / "model.onnx")
    os.mkfifo(tmp_path / "m" / "1" / "weights.bin")

    assert versions(tmp_path)["1"].fault == "weights.bin is neither a file nor a folder"


def test_a_file_beside_the_versions_can_be_read(tmp_path: Path) -> None:
    put(tmp_path / "m" / "config.pbtxt", b"max_batch_size: 8")
    repository = LocalRepository(tmp_path, links_outside=False)

    assert repository.scan("m").config == "max_batch_size: 8"
    assert repository.read("m", "config.pbtxt") == b"max_batch_size: 8"
    assert repository.read("m", "other") is None
    assert repository.read("none", "config.pbtxt") is None
