"""Models in an object store, here one in memory."""

from collections.abc import Iterator

import fsspec
import pytest

from services.runtime.object_store import ObjectStore
from services.runtime.remote_repository import RemoteRepository
from services.runtime.source import UnreachableError


class Bucket:
    def __init__(self) -> None:
        self.files = fsspec.filesystem("memory", skip_instance_cache=True)
        self.files.store = {}  # its own, not the class's
        self.files.pseudo_dirs = [""]

    def put(self, name: str, content: bytes = b"x") -> None:
        self.files.pipe_file(f"/bucket/{name}", content)

    def repository(self, root: str) -> RemoteRepository:
        return RemoteRepository(ObjectStore(self.files, f"/bucket/{root}".rstrip("/"), f"mem://bucket/{root}"))


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    bucket = Bucket()
    yield bucket
    bucket.files.store.clear()


def test_versions_are_what_lies_below_decimal_names(bucket: Bucket) -> None:
    for name in ("1/model.onnx", "1/data/w.bin", "10/model.onnx", "007/model.onnx", "config.pbtxt", "latest/x"):
        bucket.put(f"models/m/{name}")
    for name in ("2/model.onnx.part", "3/.hidden/x", "tmp.part/x"):
        bucket.put(f"models/m/{name}")
    bucket.put("models/mm/5/model.onnx")
    found = bucket.repository("models").scan("m")

    assert {version: [s.name for s in each.fingerprint] for version, each in found.versions.items()} == {
        "1": ["data/w.bin", "model.onnx"],
        "10": ["model.onnx"],
    }
    assert found.ignored == ("007", "latest")
    assert found.config == "x"
    assert str(found.versions["1"].folder) == "mem://bucket/models/m/1"


def test_a_models_own_prefix_is_a_repository_too(bucket: Bucket) -> None:
    bucket.put("models/m/1/model.onnx")

    assert set(bucket.repository("models/m").scan("m").versions) == {"1"}
    assert bucket.repository("models/m").scan("other").versions == {}


def test_a_prefix_that_is_not_there_is_no_empty_repository(bucket: Bucket) -> None:
    bucket.put("models/m/1/model.onnx")

    with pytest.raises(UnreachableError, match="mem://bucket/modls is not there"):
        bucket.repository("modls").scan("m")


def test_names_that_lead_elsewhere_make_the_version_unfit_and_no_other(bucket: Bucket) -> None:
    bucket.put("models/m/1/model.onnx")
    bucket.put("models/m/2/model\n.onnx")
    found = bucket.repository("models").scan("m").versions

    assert found["1"].fault == ""
    assert "has control characters" in found["2"].fault


def test_new_content_has_another_look(bucket: Bucket) -> None:
    bucket.put("models/m/1/model.onnx", b"one")
    before = bucket.repository("models").scan("m").versions["1"]
    same = bucket.repository("models").scan("m").versions["1"]
    bucket.put("models/m/1/model.onnx", b"two")
    after = bucket.repository("models").scan("m").versions["1"]

    assert before == same
    assert before != after


def test_a_file_beside_the_versions_can_be_read(bucket: Bucket) -> None:
    bucket.put("models/m/config.pbtxt", b"max_batch_size: 8")

    assert bucket.repository("models").read("m", "config.pbtxt") == b"max_batch_size: 8"
    assert bucket.repository("models/m").read("m", "config.pbtxt") == b"max_batch_size: 8"
    assert bucket.repository("models").read("m", "other") is None
