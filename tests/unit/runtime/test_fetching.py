"""An artifact's way into the cache."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.runtime import fetching
from services.runtime.fetching import Fetching, NoRoomError
from services.runtime.source import Artifact, ChangedError, Stat, UnreachableError, digest

CONTENT = {"a/weights.bin": b"w" * 100, "model.onnx": b"m" * 10}


class Server:
    """A folder of a server that fails as it is told: `falls` times in the middle of the first file."""

    is_remote = True

    def __init__(self, content: dict[str, bytes], falls: int = 0, *, tells_sizes: bool = True) -> None:
        self.content = content
        self.falls = falls
        self.tells_sizes = tells_sizes
        self.read: list[str] = []

    def __str__(self) -> str:
        return "test://server/m/1"

    def stats(self) -> tuple[Stat, ...]:
        return tuple(
            Stat(name, len(content) if self.tells_sizes else -1, hashlib.sha256(content).hexdigest())
            for name, content in sorted(self.content.items())
        )

    def chunks(self, name: str) -> Iterator[bytes]:
        self.read.append(name)
        content = self.content[name]
        yield content[:5]
        if self.falls:
            self.falls -= 1
            raise UnreachableError("connection reset")
        yield content[5:]

    def artifact(self, **sums: str) -> Artifact:
        return Artifact(self, self.stats(), sums=tuple(sums.items()))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_FIRST_WAIT_S", 0.0001)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("tells_sizes", [True, False])
def test_the_digest_is_that_of_what_lies_there(tmp_path: Path, *, tells_sizes: bool) -> None:
    identity = Fetching(Server(CONTENT, tells_sizes=tells_sizes).artifact(), tmp_path, 60).run()

    assert identity == digest(tmp_path, {name: len(content) for name, content in CONTENT.items()})
    assert {name: (tmp_path / name).read_bytes() for name in CONTENT} == CONTENT


def test_a_file_that_breaks_off_is_read_again_and_counted_once(tmp_path: Path) -> None:
    server = Server(CONTENT, falls=3)
    identity = Fetching(server.artifact(), tmp_path, 60).run()

    assert server.read == ["a/weights.bin"] * 4 + ["model.onnx"]
    assert identity == digest(tmp_path, {name: len(content) for name, content in CONTENT.items()})


def test_tries_end(tmp_path: Path) -> None:
    server = Server(CONTENT, falls=4)
    with pytest.raises(UnreachableError, match="connection reset"):
        Fetching(server.artifact(), tmp_path, 60).run()

    assert server.read == ["a/weights.bin"] * 4


def test_a_fetch_ends_when_its_time_is_over(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not here after 0 s"):
        Fetching(Server(CONTENT).artifact(), tmp_path, 0).run()


@pytest.mark.parametrize("length", [9, 11])
def test_other_sizes_than_were_listed_are_not_taken(tmp_path: Path, length: int) -> None:
    server = Server(CONTENT)
    artifact = server.artifact()
    server.content = CONTENT | {"model.onnx": b"m" * length}

    with pytest.raises(ChangedError, match=r"model\.onnx has not the 10 bytes that were listed"):
        Fetching(artifact, tmp_path, 60).run()


def test_a_file_that_changed_meanwhile_is_not_taken(tmp_path: Path) -> None:
    server = Server(CONTENT)
    artifact = server.artifact()
    server.content = CONTENT | {"model.onnx": b"n" * 10}

    with pytest.raises(ChangedError, match="changed while they were copied"):
        Fetching(artifact, tmp_path, 60).run()


def test_checksums_are_held_against_what_came(tmp_path: Path) -> None:
    right, wrong = f"{sha(CONTENT['model.onnx'])}  model.onnx\n", f"{sha(b'other')}  model.onnx\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    Fetching(Server(CONTENT | {"SHA256SUMS": right.encode()}).artifact(), tmp_path / "a", 60).run()

    with pytest.raises(ChangedError, match=r"model\.onnx does not match SHA256SUMS"):
        Fetching(Server(CONTENT | {"SHA256SUMS": wrong.encode()}).artifact(), tmp_path / "b", 60).run()


def test_what_checksums_name_must_be_there(tmp_path: Path) -> None:
    sums = f"{sha(b'x')}  other.bin\n".encode()

    with pytest.raises(ChangedError, match=r"SHA256SUMS names other\.bin, which is not there"):
        Fetching(Server(CONTENT | {"SHA256SUMS": sums}).artifact(), tmp_path, 60).run()


def test_checksums_of_the_listing_count_too(tmp_path: Path) -> None:
    artifact = Server({"model.onnx": b"m"}).artifact(**{"model.onnx": sha(b"other")})

    with pytest.raises(ChangedError, match=r"model\.onnx does not match SHA256SUMS"):
        Fetching(artifact, tmp_path, 60).run()


def test_what_does_not_fit_the_disk_is_not_begun(tmp_path: Path) -> None:
    server = Server(CONTENT)
    artifact = server.artifact()._replace(fingerprint=(Stat("model.onnx", 1 << 60, "t"),))

    with pytest.raises(NoRoomError, match=f"{1 << 60} bytes do not fit"):
        Fetching(artifact, tmp_path, 60).run()
    assert server.read == []
