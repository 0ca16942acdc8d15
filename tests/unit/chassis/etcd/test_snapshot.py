import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.etcd.snapshot import BadSnapshotError, Snapshot, Stored, decode, encode, read, write

STORED = st.builds(Stored, st.binary(max_size=40), st.integers(1, 2**62))
SNAPSHOT = Snapshot("/turnout/", 7, 1000.5, {"routes/digits": Stored(b'{"stable": "1"}', 5), "raw": Stored(b"\xff", 6)})


@given(entries=st.dictionaries(st.text(max_size=20), STORED, max_size=5))
def test_decoding_gives_what_was_encoded(entries: dict[str, Stored]) -> None:
    snapshot = SNAPSHOT._replace(entries=entries)

    assert snapshot == decode(encode(snapshot))


def test_keys_that_are_no_utf_8_survive() -> None:
    key = b"models/\xff".decode(errors="surrogateescape")
    snapshot = SNAPSHOT._replace(entries={key: Stored(b"1", 1)})

    assert snapshot == decode(encode(snapshot))


def test_text_stays_readable() -> None:
    document = json.loads(encode(SNAPSHOT))

    assert document["snapshot"]["entries"]["routes/digits"] == {"revision": 5, "text": '{"stable": "1"}'}


@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff", b"[]", b"null", b"{}", b'{"sha256": "", "snapshot": {}}', b"[" * 100_000]
)
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(BadSnapshotError):
        decode(data)


def test_every_cut_is_noticed() -> None:
    data = encode(SNAPSHOT)

    for length in range(len(data)):
        with pytest.raises(BadSnapshotError):
            decode(data[:length])


def test_a_changed_value_is_noticed() -> None:
    data = encode(SNAPSHOT).replace(b'\\"1\\"', b'\\"2\\"')

    with pytest.raises(BadSnapshotError, match="checksum"):
        decode(data)


def test_a_file_is_written_whole_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "snapshot.json"
    write(path, SNAPSHOT._replace(revision=6))
    write(path, SNAPSHOT)

    assert read(path, "/turnout/") == SNAPSHOT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_left_over_temporary_file_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    write(path, SNAPSHOT)
    path.chmod(0o644)
    write(path, SNAPSHOT)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_file_is_no_snapshot(tmp_path: Path) -> None:
    assert read(tmp_path / "none.json", "/turnout/") is None


def test_a_snapshot_of_another_prefix_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "s.json", SNAPSHOT)

    with pytest.raises(BadSnapshotError, match="prefix /turnout/"):
        read(tmp_path / "s.json", "/other/")
