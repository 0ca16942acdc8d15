"""Copies of artifacts."""

from pathlib import Path

import pytest

from services.runtime.artifact_cache import ArtifactCache
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
