"""Models behind a web server: one that lists its folders, one with a manifest, and one that errs."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from services.runtime.artifact_cache import ArtifactCache
from services.runtime.repositories import Repositories
from services.runtime.source import Repository, UnreachableError

Put = Callable[[str, bytes], Path]


class Handler(SimpleHTTPRequestHandler):
    """`server.wrongs` holds what to do wrong, by path: a status, a page, or how many bytes to send before the end."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        wrong = self.server.wrongs.get(self.path)
        if isinstance(wrong, list):
            wrong = wrong.pop(0) if wrong else None
        match wrong:
            case int() if wrong >= 400:
                self.send_error(wrong)
            case int():
                content = Path(self.translate_path(self.path)).read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[:wrong])
                self.close_connection = True
            case str():
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(wrong)))
                self.end_headers()
                self.wfile.write(wrong.encode())
            case _:
                super().do_GET()

    def log_message(self, *_: object) -> None: ...


class Web(ThreadingHTTPServer):
    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.wrongs: dict[str, int | str | list[int]] = {}
        self.asked: list[str] = []

    def repository(self, path: str = "models") -> Repository:
        return Repositories().of(f"http://127.0.0.1:{self.server_address[1]}/{path}")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with Web(tmp_path / "web") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def put(name: str, content: bytes) -> Path:
        file = tmp_path / "web" / "models" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    return put


def test_folders_that_the_server_lists_are_a_repository(web: Web, put: Put) -> None:
    put("m/1/model.onnx", b"one")
    put("m/1/data/a & b#1.bin", b"two")
    put("m/2.part/model.onnx", b"no")
    put("m/007/model.onnx", b"no")
    put("m/config.pbtxt", b"max_batch_size: 8")
    found = web.repository().scan("m")
    folder = found.versions["1"].folder

    assert set(found.versions) == {"1"}
    assert [stat[:2] for stat in found.versions["1"].fingerprint] == [("data/a & b#1.bin", 3), ("model.onnx", 3)]
    assert b"".join(folder.chunks("data/a & b#1.bin")) == b"two"
    assert folder.stats() == found.versions["1"].fingerprint
    assert web.repository().scan("m") == found
    assert web.repository("models/m").scan("m").versions["1"].fingerprint == found.versions["1"].fingerprint
    assert web.repository().read("m", "config.pbtxt") == b"max_batch_size: 8"
    assert web.repository().read("m", "other") is None
    assert web.repository().scan("none").versions == {}
    with pytest.raises(UnreachableError, match="nowhere is not there, or does not list"):
        web.repository("nowhere").scan("m")


@pytest.mark.parametrize(
    ("path", "wrong", "reason"),
    [
        ("/models/m/", "<html>We are back soon</html>", "names no file: is it a listing?"),
        ("/models/m/", 503, "503"),
        ("/models/m/1/", 404, "is not there any more"),
        ("/models/m/SHA256SUMS", 500, "500"),
    ],
)
def test_a_page_of_another_kind_is_no_empty_repository(
    web: Web, put: Put, path: str, wrong: int | str, reason: str
) -> None:
    put("m/1/model.onnx", b"one")
    web.wrongs[path] = wrong

    with pytest.raises(UnreachableError, match=reason):
        web.repository().scan("m")


async def test_a_manifest_is_a_listing_where_the_server_has_none(web: Web, put: Put, tmp_path: Path) -> None:
    content = b"\x08\x09onnx"
    put("m/3/model.onnx", content)
    put("m/SHA256SUMS", f"{hashlib.sha256(content).hexdigest()}  3/model.onnx\n".encode())
    web.wrongs = {"/models/": 403, "/models/m/": 403, "/models/m/3/": 403}
    found = web.repository().scan("m").versions
    fetched = await ArtifactCache(tmp_path / "cache").fetch(found["3"], None)

    assert fetched.fault == ""
    assert fetched.found is not None
    assert fetched.found.file.read_bytes() == content


async def test_a_download_that_breaks_off_goes_on_and_is_made_once(web: Web, put: Put, tmp_path: Path) -> None:
    content = b"\x08\x09onnx" * 100
    put("m/1/model.onnx", content)
    web.wrongs["/models/m/1/model.onnx"] = [100, 503]
    artifact = web.repository().scan("m").versions["1"]
    fetched = await ArtifactCache(tmp_path / "cache").fetch(artifact, None)
    tries = web.asked.count("/models/m/1/model.onnx")
    again = await ArtifactCache(tmp_path / "cache").fetch(web.repository().scan("m").versions["1"], None)

    assert fetched.found is not None
    assert fetched.found.file.read_bytes() == content
    assert tries == 3
    assert again == fetched
    assert web.asked.count("/models/m/1/model.onnx") == 3
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [fetched.digest]


async def test_what_does_not_match_its_checksums_is_never_loaded(web: Web, put: Put, tmp_path: Path) -> None:
    put("m/1/model.onnx", b"\x08\x09onnx")
    put("m/SHA256SUMS", b"0" * 64 + b"  1/model.onnx\n")
    artifact = web.repository().scan("m").versions["1"]
    with pytest.raises(Exception, match=r"model\.onnx does not match SHA256SUMS"):
        await ArtifactCache(tmp_path / "cache").fetch(artifact, None)

    assert list((tmp_path / "cache").iterdir()) == []
