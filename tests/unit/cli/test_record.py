"""Recording into a file."""

from pathlib import Path
from typing import cast

from services.chassis.link import Link
from services.chassis.recordings import RecordingWriter
from services.cli.record import Recorder
from turnout.v1 import link_pb2, recorded_pb2


class Full(RecordingWriter):
    """Of a disk that is full."""

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_file_that_cannot_be_written_ends_the_recording(tmp_path: Path) -> None:
    writer = Full(tmp_path / "b.recorded")
    recorder = Recorder(recorded_pb2.Sampling(model="m"), writer, 10, 1 << 20)
    recorder.received(cast("Link", object()), link_pb2.Frame(records=[recorded_pb2.Recorded(model="m")]))
    writer._file.close()

    assert recorder.done.is_set()
    assert str(recorder.fault) == "[Errno 28] No space left on device"
