"""Copies of artifacts."""

import os
from pathlib import Path

import pytest

from services.runtime.artifact_cache import ArtifactCache, Fetched
from services.runtime.local_repository import LocalRepository
from services.runtime.source import Artifact, ChangedError


def put(root: Path, content: bytes = b"\x08\x09onnx", name: str = "model.onnx") -> Path:
    file = root / "m" / "1" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def artifact(folder: Path) -> Artifact:
    return LocalRepository(folder / "models", links_outside=False).scan("m").versions["1"]


def copies(folder: Path) -> list[str]:
    return [file.name for file in folder.glob("cache/*")]


async def test_a_copy_does_not_change_with_its_source(tmp_path: Path) -> None:
    source = put(tmp_path / "models")
    cache = ArtifactCache(tmp_path / "cache")
    first = await cache.fetch(artifact(tmp_path), None)
    source.write_bytes(b"\x08\x09other")
    second = await cache.fetch(artifact(tmp_path), None)

    assert first.found is not None
    assert second.found is not None
    assert first.digest != second.digest
    assert first.found.file.read_bytes() == b"\x08\x09onnx"
    assert second.found.file.read_bytes() == b"\x08\x09other"


async def test_a_damaged_copy_is_made_anew(tmp_path: Path) -> None:
    put(tmp_path / "models")
    cache = ArtifactCache(tmp_path / "cache")
    seen = artifact(tmp_path)
    first = await cache.fetch(seen, None)
    assert first.found is not None
    first.found.file.write_bytes(b"\x08\x09damag")
    again = await cache.fetch(seen, None)

    assert again.found is not None
    assert again.digest == first.digest
    assert again.found.file.read_bytes() == b"\x08\x09onnx"


async def test_a_wrong_artifact_has_a_digest_and_a_fault(tmp_path: Path) -> None:
    put(tmp_path / "models", b"PK\3\4")
    fetched = await ArtifactCache(tmp_path / "cache").fetch(artifact(tmp_path), None)

    assert fetched.found is None
    assert fetched.fault == "model.onnx: expected an ONNX model (protobuf), found a zip archive"
    assert len(fetched.digest) == 64


async def test_files_that_change_while_they_are_read_are_not_taken(tmp_path: Path) -> None:
    put(tmp_path / "models")
    put(tmp_path / "models", b"0" * 64 + b"  model.onnx\n", "SHA256SUMS")
    with pytest.raises(ChangedError, match=r"model.onnx does not match SHA256SUMS"):
        await ArtifactCache(tmp_path / "cache").fetch(artifact(tmp_path), None)

    assert copies(tmp_path) == []


async def test_only_what_is_used_stays(tmp_path: Path) -> None:
    source = put(tmp_path / "models")
    cache = ArtifactCache(tmp_path / "cache")
    first = await cache.fetch(artifact(tmp_path), None)
    source.write_bytes(b"\x08\x09other")
    second = await cache.fetch(artifact(tmp_path), None)
    (tmp_path / "cache" / "incoming-crashed").mkdir()
    await cache.keep_only({second.digest})

    assert [folder.name for folder in (tmp_path / "cache").iterdir()] == [second.digest]
    assert first.digest != second.digest


async def test_two_fetches_of_the_same_content_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "models")
    seen, cache = artifact(tmp_path), ArtifactCache(tmp_path / "cache")
    look = cache._is_whole
    others: list[Fetched] = []

    def whole(artifact: Artifact, identity: str) -> bool:
        """Another fetch ends between this one's look and what it does next."""
        found = look(artifact, identity)
        if not others:
            others.append(Fetched("", None))
            others[0] = cache._fetch(artifact, None)
        return found

    monkeypatch.setattr(cache, "_is_whole", whole)
    fetched = await cache.fetch(seen, None)

    assert fetched == others[0]
    assert fetched.found is not None
    assert copies(tmp_path) == [fetched.digest]


def test_a_name_that_is_no_utf_8_is_a_fault_that_can_be_told(tmp_path: Path) -> None:
    put(tmp_path / "models")
    folder = bytes(tmp_path / "models" / "m" / "1")
    Path(os.fsdecode(folder + b"/\xff.txt")).write_text("")
    named = artifact(tmp_path).fault
    Path(os.fsdecode(folder + b"/\xff.txt")).unlink()
    Path(os.fsdecode(folder + b"/\xff.txt")).symlink_to("/etc/hostname")
    linked = artifact(tmp_path).fault

    assert named == "the name '\\udcff.txt' is not UTF-8"
    assert linked.encode().startswith(b"\\udcff.txt leads to")
