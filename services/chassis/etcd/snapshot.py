"""The last known entries on disk, for a start without etcd."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_FORMAT = 1


class BadSnapshotError(Exception):
    """The file is not a whole snapshot of this prefix."""


class Stored(NamedTuple):
    """A value and the revision that wrote it."""

    value: bytes
    revision: int


class Snapshot(NamedTuple):
    """What etcd held below `prefix` at `revision`; `saved_at` is Unix time."""

    prefix: str
    revision: int
    saved_at: float
    entries: Mapping[str, Stored]


def encode(snapshot: Snapshot) -> bytes:
    """One JSON object with a checksum over the rest; values are text where they can be, base64 elsewhere."""
    body = {
        "format": _FORMAT,
        "prefix": snapshot.prefix,
        "revision": snapshot.revision,
        "saved_at": snapshot.saved_at,
        "entries": {key: _encode_entry(stored) for key, stored in snapshot.entries.items()},
    }
    return json.dumps({"sha256": _checksum(body), "snapshot": body}, indent=1).encode()


def decode(data: bytes) -> Snapshot:
    """Raises BadSnapshotError saying what is wrong."""
    try:
        document = json.loads(data)
        body = document["snapshot"]
        if document["sha256"] != _checksum(body):
            raise BadSnapshotError("the checksum does not match")
        if body["format"] != _FORMAT:
            raise BadSnapshotError(f"format {body['format']}, expected {_FORMAT}")
        entries = {key: _decode_entry(entry) for key, entry in body["entries"].items()}
        return Snapshot(body["prefix"], body["revision"], body["saved_at"], entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadSnapshotError(f"not a snapshot: {type(error).__name__} {error}") from None


def read(path: Path, prefix: str) -> Snapshot | None:
    """The snapshot at `path`; None if there is none. Raises BadSnapshotError for a bad or foreign one."""
    try:
        snapshot = decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadSnapshotError(f"not readable: {error.strerror}") from None
    if snapshot.prefix != prefix:
        raise BadSnapshotError(f"of prefix {snapshot.prefix}, expected {prefix}")
    return snapshot


def write(path: Path, snapshot: Snapshot) -> None:
    """Replace the file atomically, readable by its owner only. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        temporary.touch(mode=0o600, exist_ok=False)
        with temporary.open("wb") as file:
            file.write(encode(snapshot))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _encode_entry(stored: Stored) -> dict[str, Any]:
    try:
        return {"revision": stored.revision, "text": stored.value.decode()}
    except UnicodeDecodeError:
        return {"revision": stored.revision, "base64": base64.b64encode(stored.value).decode()}


def _decode_entry(entry: dict[str, Any]) -> Stored:
    if "text" in entry:
        return Stored(entry["text"].encode(), entry["revision"])
    return Stored(base64.b64decode(entry["base64"], validate=True), entry["revision"])


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
