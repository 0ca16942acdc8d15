"""memory://NAME: a dictionary of this process, for trying things out and for tests."""

from collections.abc import Mapping, Sequence

_STORES: dict[str, dict[tuple[str, bytes], bytes]] = {}  # by NAME, so that a loader and a proxy in one process share it


class MemoryStore:
    def __init__(self, name: str) -> None:
        self._blobs = _STORES.setdefault(name, {})

    async def get_many(self, view: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._blobs.get((view, key)) for key in keys]

    async def put_many(self, view: str, blobs: Mapping[bytes, bytes]) -> None:
        self._blobs.update({(view, key): blob for key, blob in blobs.items()})

    async def close(self) -> None:
        """Nothing to do: the values live as long as the process."""
