"""Models at gs://, from a server of ours that speaks as much of the store's JSON API as a repository needs."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import fsspec.config
import pytest

from services.runtime.repositories import Repositories
from services.runtime.source import UnreachableError

CONTENT = bytes(range(256)) * 40_000  # of two requests
OBJECTS = {"models/m/1/model.onnx": CONTENT, "models/m/config.pbtxt": b"max_batch_size: 8"}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        name = path.partition("/o/")[2]
        if path.endswith("/o"):
            self._send(200, json.dumps(listing(dict(parse_qsl(url.query)))).encode())
        elif name not in OBJECTS:
            self._send(404, b'{"error": {"code": 404, "message": "no such object"}}')
        elif path.startswith("/download/"):
            first, last = (int(each) for each in self.headers["Range"].removeprefix("bytes=").split("-"))
            self._send(206, OBJECTS[name][first : last + 1])
        else:
            self._send(200, json.dumps(described(name)).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


def described(name: str) -> dict[str, Any]:
    return {
        "name": name, "bucket": "bucket", "size": str(len(OBJECTS[name])), "generation": "7",
        "updated": "2026-01-01T00:00:00Z", "timeCreated": "2026-01-01T00:00:00Z",
    }  # fmt: skip


def listing(query: dict[str, str]) -> dict[str, Any]:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    below = {name: name.removeprefix(prefix) for name in OBJECTS if name.startswith(prefix)}
    folders = {prefix + rest.split("/")[0] + "/" for rest in below.values() if delimiter and "/" in rest}
    items = [described(name) for name, rest in below.items() if not (delimiter and "/" in rest)]
    return {"kind": "storage#objects", "prefixes": sorted(folders), "items": items}


@pytest.fixture
def repositories(monkeypatch: pytest.MonkeyPatch) -> Iterator[Repositories]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
        yield Repositories()
        server.shutdown()
        thread.join()


def test_a_bucket_is_a_repository(repositories: Repositories) -> None:
    repository = repositories.of("gs://bucket/models")
    found = repository.scan("m")
    artifact = found.versions["1"]

    assert [(stat.name, stat.size) for stat in artifact.fingerprint] == [("model.onnx", len(CONTENT))]
    assert found.config == "max_batch_size: 8"
    assert b"".join(artifact.folder.chunks("model.onnx")) == CONTENT
    assert artifact.folder.stats() == artifact.fingerprint
    assert repository.scan("none").versions == {}
    with pytest.raises(UnreachableError, match="gs://bucket/nowhere is not there"):
        repositories.of("gs://bucket/nowhere").scan("m")
