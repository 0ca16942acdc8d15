"""System shared memory that callers on this host have registered: inputs read from it, outputs written into it.

Read and written by position, never mapped: whoever made the memory may cut it off at any time, which would kill a
process that has it mapped, and is a short read here.
"""

import os
import re
import stat
import weakref
from pathlib import Path

from services.chassis.arena.layout import FOLDER, PREFIX
from services.core.errors import AlreadyExistsError, InvalidRequestError, NotFoundError, UnimplementedError

_KEY = re.compile(r"/?([A-Za-z0-9_-][A-Za-z0-9._-]{0,254})")
_MAX_NAME = 256
_MAX_REGIONS = 1024
_OPTION = "TURNOUT_ROUTER_SYSTEM_SHARED_MEMORY"
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Region:
    """A part of one shared memory object. It stays usable for requests that have it while it is unregistered."""

    def __init__(self, name: str, key: str, offset: int, byte_size: int, folder: Path) -> None:
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        self._fd, self._is_writable = _open(folder, key)
        weakref.finalize(self, os.close, self._fd)
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidRequestError(f"key {key!r} is no shared memory object")
        if offset + byte_size > found.st_size:
            raise InvalidRequestError(
                f"region {name!r}: offset {offset} and byte_size {byte_size} reach past the {found.st_size} bytes of"
                f" {key!r}"
            )

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the region. Raises InvalidRequestError when its owner has cut it off."""
        data = os.pread(self._fd, length, self.offset + offset)
        if len(data) != length:
            raise InvalidRequestError(f"region {self.name!r} has shrunk: {len(data)} of {length} bytes are left")
        return data

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Put `data` into the region. Raises InvalidRequestError when its owner does not let it, or has cut it off."""
        if not self._is_writable:
            raise InvalidRequestError(f"region {self.name!r} may only be read: {self.key!r} belongs to somebody else")
        if os.fstat(self._fd).st_size < self.offset + offset + len(data):
            raise InvalidRequestError(f"region {self.name!r} has shrunk: an output no longer fits")
        try:
            written = os.pwrite(self._fd, data, self.offset + offset)
        except OSError as error:
            raise InvalidRequestError(f"region {self.name!r} cannot be written: {error.strerror}") from None
        if written != len(data):
            raise InvalidRequestError(f"region {self.name!r}: {written} of {len(data)} bytes could be written")

    def check_part(self, offset: int, length: int) -> None:
        """Raise InvalidRequestError unless that lies within the region."""
        if offset + length > self.byte_size:
            raise InvalidRequestError(
                f"region {self.name!r} has {self.byte_size} bytes; shared_memory_offset {offset} and"
                f" shared_memory_byte_size {length} reach past its end"
            )


class Regions:
    """All of them, by the names that callers gave. Off unless an operator has said otherwise."""

    def __init__(self, *, offered: bool, folder: Path = FOLDER) -> None:
        self._offered = offered
        self._folder = folder
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Raises ServingError saying what is wrong with any of it."""
        self._check_offered()
        if not 0 < len(name) <= _MAX_NAME:
            raise InvalidRequestError(f"a region's name has 1 to {_MAX_NAME} characters")
        if name in self._regions:
            raise AlreadyExistsError(f"region {name!r} is registered: unregister it first")
        if len(self._regions) >= _MAX_REGIONS:
            raise InvalidRequestError(f"{_MAX_REGIONS} regions are registered, the most this router holds")
        if offset < 0 or byte_size <= 0:
            raise InvalidRequestError(f"region {name!r}: offset {offset}, byte_size {byte_size}; it takes some bytes")
        self._regions[name] = Region(name, key, offset, byte_size, self._folder)

    def unregister(self, name: str = "") -> None:
        """Forget a region, or all of them; one that is not there is forgotten already."""
        self._check_offered()
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def registered(self, name: str = "") -> list[Region]:
        """One region, or all. Raises NotFoundError."""
        self._check_offered()
        return [self.named(name)] if name else list(self._regions.values())

    def named(self, name: str) -> Region:
        self._check_offered()
        region = self._regions.get(name)
        if region is None:
            raise NotFoundError(f"there is no shared memory region {name[:_MAX_NAME]!r}: register it first")
        return region

    def _check_offered(self) -> None:
        if not self._offered:
            raise UnimplementedError(
                f"system shared memory is off on this router: {_OPTION}=true switches it on; or send the tensor's bytes"
            )


def no_cuda() -> UnimplementedError:
    return UnimplementedError("CUDA shared memory is not offered: this router uses no GPU; send the tensor's bytes")


def _open(folder: Path, key: str) -> tuple[int, bool]:
    """The object's descriptor, and whether it may be written."""
    found = _KEY.fullmatch(key)
    if found is None or found[1].startswith(PREFIX):
        raise InvalidRequestError(
            f"key {key[:_MAX_NAME]!r} is not the name of a shared memory object, as in /my_tensors"
        )
    path = folder / found[1]
    try:
        try:
            return os.open(path, os.O_RDWR | _FLAGS), True
        except PermissionError:
            return os.open(path, os.O_RDONLY | _FLAGS), False
    except OSError as error:
        raise InvalidRequestError(f"shared memory object {key!r} cannot be opened: {error.strerror}") from None
