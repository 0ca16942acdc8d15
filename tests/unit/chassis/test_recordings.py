"""Files of records."""

import stat
from pathlib import Path

import pytest

from services.chassis.recordings import BadRecordingError, RecordingReader, RecordingWriter
from services.core.delimited import delimited
from turnout.v1.recorded_pb2 import Recorded

NAMES = ("a.recorded", "a.recorded.gz")


def records(count: int) -> list[Recorded]:
    return [Recorded(model="m", rows=number, request_id=str(number) * 20) for number in range(count)]


def written(path: Path, *given: Recorded) -> Path:
    with RecordingWriter(path) as writer:
        for record in given:
            writer.write(record)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_is_read_back_by_its_owner_only(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, *records(20))
    with RecordingReader(path) as reader:
        assert list(reader) == records(20)

    assert not reader.is_cut
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", NAMES)
def test_what_was_flushed_is_there_though_its_writer_was_killed(tmp_path: Path, name: str) -> None:
    with RecordingWriter(tmp_path / name) as writer:
        for record in records(5):
            writer.write(record)
        writer.flush()
        with RecordingReader(tmp_path / name) as reader:
            found = list(reader)

    assert found == records(5)
    assert writer.size == sum(len(delimited(record.SerializeToString())) for record in records(5))


def test_a_file_that_is_cut_off_gives_what_is_whole(tmp_path: Path) -> None:
    path = written(tmp_path / NAMES[0], *records(3))
    path.write_bytes(path.read_bytes()[:-1])
    with RecordingReader(path) as reader:
        assert list(reader) == records(2)

    assert reader.is_cut


def test_no_file_is_written_over(tmp_path: Path) -> None:
    path = written(tmp_path / NAMES[0], *records(1))
    with pytest.raises(FileExistsError):
        RecordingWriter(path)
    with RecordingReader(path) as reader:
        assert list(reader) == records(1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a,b,c\n1,2,3\n" * 20, "a.recorded: expected records; message 1 is no turnout.v1.Recorded"),
        (b"rubbish", "a.recorded: expected records; found none that is whole"),
        (b"\x00", "a.recorded: expected records; message 1 names no model"),
        (b"\xff" * 20, "a.recorded: expected records; message 1 at byte 0 has no length"),
        (delimited(records(1)[0].SerializeToString()) + b"\x02\xff\xff", "message 2 is no turnout.v1.Recorded"),
    ],
)
def test_what_is_no_record_is_refused_with_its_file_and_place(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / NAMES[0]).write_bytes(content)
    with RecordingReader(tmp_path / NAMES[0]) as reader, pytest.raises(BadRecordingError, match=reason):
        list(reader)


def test_what_is_not_compressed_is_refused_where_the_name_says_so(tmp_path: Path) -> None:
    (tmp_path / NAMES[1]).write_bytes(b"plain")
    with RecordingReader(tmp_path / NAMES[1]) as reader, pytest.raises(BadRecordingError, match="Not a gzipped file"):
        list(reader)
