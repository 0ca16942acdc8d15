"""What every store can do."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class StoreError(Exception):
    """A store could not be read or written; the message is for the log."""


class OnlineStore(Protocol):
    """Blobs by view and entity key. Connects when first used and again after a loss; calls may be cancelled."""

    async def get_many(self, view: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The blob of each key, None where there is none, in one round trip. Raises StoreError."""

    async def put_many(self, view: str, blobs: Mapping[bytes, bytes]) -> None:
        """Write all of `blobs`, replacing older ones. Raises StoreError."""

    async def close(self) -> None: ...
