"""A model repository on disk."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from services.runtime.source import BadRepositoryError, Stat, digest, is_settled, mismatch, path_of, scan


def put(file: Path, content: bytes = b"x") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    ("url", "expected"),
    [("file:///srv/models", "/srv/models"), ("/srv/models", "/srv/models"), ("file:///a%20b", "/a b")],
)
def test_a_repository_is_a_path_or_a_file_url(url: str, expected: str) -> None:
    assert path_of(url) == Path(expected)


@pytest.mark.parametrize("url", ["s3://bucket/models", "http://host/m", "file://host/m", ""])
def test_other_repositories_are_refused(url: str) -> None:
    with pytest.raises(BadRepositoryError):
        path_of(url)


def test_versions_are_decimal_folders_with_files(tmp_path: Path) -> None:
    for name in ("1/model.onnx", "10/deep/er/model.onnx", "2.tmp/model.onnx", "latest/model.onnx", "007/model.onnx"):
        put(tmp_path / "m" / name)
    (tmp_path / "m" / "3").mkdir()
    put(tmp_path / "m" / "4" / ".model.onnx.Xy12")
    put(tmp_path / "m" / "5" / "model.onnx.part")

    found = scan(tmp_path, "m")

    assert set(found) == {"1", "10"}
    assert [stat.name for stat in found["10"].fingerprint] == ["deep/er/model.onnx"]


def test_a_models_own_folder_is_a_repository_too(tmp_path: Path) -> None:
    put(tmp_path / "m" / "1" / "model.onnx")

    assert set(scan(tmp_path / "m", "m")) == {"1"}
    assert scan(tmp_path / "m", "other") == {}


def test_a_missing_repository_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        scan(tmp_path / "unmounted", "m")


def test_a_fingerprint_changes_with_content_that_keeps_its_size_and_time(tmp_path: Path) -> None:
    file = put(tmp_path / "m" / "1" / "model.onnx", b"one")
    before = scan(tmp_path, "m")["1"]
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    while scan(tmp_path, "m")["1"] == before:  # the kernel's clock may not have moved yet
        file.write_bytes(b"two")
        os.utime(file, ns=times)

    assert scan(tmp_path, "m")["1"] != before


def test_a_version_is_settled_once_nobody_touches_it(tmp_path: Path) -> None:
    put(tmp_path / "m" / "1" / "model.onnx")
    artifact = scan(tmp_path, "m")["1"]
    old = artifact._replace(fingerprint=(Stat("f", 1, 1, time.time_ns() - 5_000_000_000, 1),))

    assert not is_settled(artifact, unchanged_for_s=0, settle_s=60)
    assert is_settled(artifact, unchanged_for_s=61, settle_s=60)
    assert is_settled(old, unchanged_for_s=0, settle_s=4)


def test_the_digest_is_of_names_and_bytes(tmp_path: Path) -> None:
    for folder, name, content in (("a", "f", b"1"), ("b", "f", b"1"), ("c", "g", b"1"), ("d", "f", b"2")):
        put(tmp_path / folder / name, content)
    one, same, renamed, changed = (
        digest(tmp_path / folder, {name: 1}) for folder, name in (("a", "f"), ("b", "f"), ("c", "g"), ("d", "f"))
    )

    assert one == same
    assert len({one, renamed, changed}) == 3


def test_the_digest_does_not_run_files_together(tmp_path: Path) -> None:
    put(tmp_path / "a" / "f", b"12")
    put(tmp_path / "a" / "g", b"3")
    put(tmp_path / "b" / "f", b"1")
    put(tmp_path / "b" / "g", b"23")

    assert digest(tmp_path / "a", {"f": 2, "g": 1}) != digest(tmp_path / "b", {"f": 1, "g": 2})


def test_checksums_say_what_is_missing_or_different(tmp_path: Path) -> None:
    content = b"whole"
    (tmp_path / "SHA256SUMS").write_text(f"{hashlib.sha256(content).hexdigest()} *model.onnx\n")

    missing = mismatch(tmp_path)
    put(tmp_path / "model.onnx", b"who")
    partial = mismatch(tmp_path)
    put(tmp_path / "model.onnx", content)

    assert missing == "SHA256SUMS names model.onnx, which is not there"
    assert partial == "model.onnx does not match SHA256SUMS"
    assert mismatch(tmp_path) == ""
