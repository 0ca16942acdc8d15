"""Files of turnout.v1.Recorded: NAME.recorded, or NAME.recorded.gz with gzip."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, cast

from google.protobuf.message import DecodeError

from services.core.delimited import BadStreamError, DelimitedReader, delimited
from turnout.v1 import recorded_pb2 as pb

_QUICK = 1  # gzip's level: records come as fast as requests
_BUFFER_BYTES = 1 << 20


class BadRecordingError(Exception):
    """A file that holds no records; the message has its name, and what was found where."""


class RecordingReader:
    """Iterates over the records of a file, as a context. Afterwards `is_cut` says whether the last one was not whole.

    Raises OSError when it cannot be opened, BadRecordingError for what is no record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = _open(path, "rb")
        self._messages = DelimitedReader(self._stream)

    @property
    def is_cut(self) -> bool:
        return self._messages.is_cut

    def __iter__(self) -> Iterator[pb.Recorded]:
        try:
            for message in self._messages:
                yield self._record(message)
        except BadStreamError as error:
            raise BadRecordingError(f"{self._path.name}: expected records; {error}") from error
        if self.is_cut and not self._messages.count:
            raise BadRecordingError(f"{self._path.name}: expected records; found none that is whole")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def _record(self, message: bytes) -> pb.Recorded:
        where = f"{self._path.name}: expected records; message {self._messages.count}"
        try:
            record: pb.Recorded = pb.Recorded.FromString(message)
        except DecodeError:
            raise BadRecordingError(f"{where} is no turnout.v1.Recorded") from None
        if not record.model:  # other bytes may happen to be read as a message
            raise BadRecordingError(f"{where} names no model")
        return record


class RecordingWriter:
    """A new file of records, for its owner's eyes only; a context. Raises FileExistsError rather than overwrite one."""

    def __init__(self, path: Path) -> None:
        self.count = 0
        self.size = 0  # of the records, before compression
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb", _BUFFER_BYTES)
        self._gzip = gzip.GzipFile("", "wb", _QUICK, self._file) if path.suffix == ".gz" else None

    def write(self, record: pb.Recorded) -> None:
        message = delimited(record.SerializeToString())
        (self._gzip or self._file).write(message)
        self.count += 1
        self.size += len(message)

    def flush(self) -> None:
        """Have what was written in the file, so that it is there whatever becomes of this process."""
        if self._gzip is not None:
            self._gzip.flush()
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._gzip is not None:
            self._gzip.close()
        self._file.close()


def _open(path: Path, mode: str) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path, mode) if path.suffix == ".gz" else path.open(mode))
