"""A live copy of the keys below a prefix: listed, then watched, for ever; with a snapshot on disk for bad days."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from services.chassis.backoff import Backoff
from services.chassis.etcd import snapshot as snapshots
from services.chassis.etcd.client import EtcdClient
from services.chassis.etcd.errors import CompactedError, EtcdError
from services.chassis.etcd.snapshot import BadSnapshotError, Snapshot, Stored
from services.chassis.etcd.watch import Change, WatchTiming


@dataclass(frozen=True, slots=True)
class MirrorTiming(WatchTiming):
    """When the snapshot takes over from an etcd that does not answer, and how often it is written at most."""

    snapshot_after_s: float = 1.0
    save_every_s: float = 0.5


class Mirror:
    """Keys that start with one of `prefixes`, as etcd last had them.

    `on_changes` is called on the loop with all changes of one message of etcd at once, after `entries` has them. After
    a gap (restart, compaction) it gets the difference to what was delivered before, deletes included.
    """

    def __init__(
        self,
        client: EtcdClient,
        prefixes: Sequence[str],
        on_changes: Callable[[list[Change]], None],
        *,
        snapshot: Path | None,
        log: Any,
        timing: MirrorTiming = MirrorTiming(),
    ) -> None:
        self._client = client
        self._prefixes = tuple(prefixes)
        self._on_changes = on_changes
        self._path = snapshot
        self._log = log
        self._timing = timing
        self.entries: dict[str, Stored] = {}
        self.revision = 0
        self.source: Literal["none", "snapshot", "etcd"] = "none"
        self.connected = False
        self.loaded = asyncio.Event()
        self._cluster = 0
        self._must_list = True
        self._lost_by: type[EtcdError] | None = None  # as last said in the log
        self._heard_at = -float("inf")  # monotonic
        self._unsaved = asyncio.Event()

    def age_s(self) -> float:
        """Seconds since the last word from etcd: a snapshot counts from when it was saved; inf before anything came."""
        return time.monotonic() - self._heard_at

    async def run(self) -> None:
        """Never returns. Cancelling it leaves the newest snapshot on disk."""
        async with asyncio.TaskGroup() as tasks:
            if self._path:
                tasks.create_task(self._fall_back(self._path), name="etcd-snapshot-load")
                tasks.create_task(self._save_for_ever(self._path), name="etcd-snapshot-save")
            await self._follow()

    async def _follow(self) -> None:
        backoff = Backoff()
        while True:
            backoff.begin()
            try:
                await self._list_and_watch()
            except CompactedError as error:
                self._must_list = True
                self._log.info("etcd_history_lost", error=str(error), revision=self.revision)
            except EtcdError as error:
                self._fail(error)
            await asyncio.sleep(backoff.next_s())

    async def _list_and_watch(self) -> None:
        """Returns only by an EtcdError."""
        if self._must_list:
            await self._list()
        timing, cluster = self._timing, self._cluster
        async with self._client.watch("", self.revision, cluster=cluster, timing=timing) as watch:
            while True:
                changes = await watch.next()
                self._hear()
                if changes:
                    self._apply(changes)

    async def _list(self) -> None:
        listing = await self._client.list("")
        self._hear()
        entries = {
            entry.key: Stored(entry.value, entry.mod_revision)
            for entry in listing.entries.values()
            if entry.key.startswith(self._prefixes)
        }
        changes = diff(self.entries, entries, listing.revision)
        self.entries, self.revision, self._cluster = entries, listing.revision, listing.cluster
        self.source, self._must_list = "etcd", False
        self._deliver(changes)
        self._unsaved.set()

    def _apply(self, changes: list[Change]) -> None:
        self.revision = max(change.revision for change in changes)
        wanted = [change for change in changes if change.key.startswith(self._prefixes)]
        for key, value, revision in wanted:
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = Stored(value, revision)
        if wanted:
            self._unsaved.set()
        self._deliver(wanted)

    def _deliver(self, changes: list[Change]) -> None:
        if changes:
            self._on_changes(changes)
        self.loaded.set()

    def _hear(self) -> None:
        self._heard_at = time.monotonic()
        self.connected = True
        if self._lost_by:
            self._lost_by = None
            self._log.info("etcd_found_again", revision=self.revision)

    def _fail(self, error: EtcdError) -> None:
        self.connected = False
        if self._lost_by is not type(error):
            self._lost_by = type(error)
            self._log.warning("etcd_lost", error=str(error), revision=self.revision, source=self.source)

    async def _fall_back(self, path: Path) -> None:
        """Deliver the snapshot unless etcd answers in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timing.snapshot_after_s):
                await self.loaded.wait()
        if self.loaded.is_set():
            return
        try:
            snapshot = await asyncio.to_thread(snapshots.read, path, self._client.prefix)
        except BadSnapshotError as error:
            self._log.warning("snapshot_ignored", path=str(path), error=str(error))
            return
        if snapshot and not self.loaded.is_set():
            self._use(snapshot)

    def _use(self, snapshot: Snapshot) -> None:
        entries = {key: stored for key, stored in snapshot.entries.items() if key.startswith(self._prefixes)}
        changes = diff({}, entries, snapshot.revision)
        self.entries, self.revision, self.source = entries, snapshot.revision, "snapshot"
        self._heard_at = time.monotonic() - max(0.0, time.time() - snapshot.saved_at)
        self._log.warning(
            "snapshot_used", revision=snapshot.revision, entries=len(entries), age_s=round(self.age_s(), 1)
        )
        self._deliver(changes)

    async def _save_for_ever(self, path: Path) -> None:
        saving: asyncio.Task[None] | None = None
        try:
            while True:
                await self._unsaved.wait()
                saving = asyncio.create_task(self._save(path), name="etcd-snapshot-write")
                await asyncio.shield(saving)
                await asyncio.sleep(self._timing.save_every_s)
        finally:
            if saving:
                await saving
            if self.source == "etcd":  # also when nothing changed: it says until when it was true
                await self._save(path)

    async def _save(self, path: Path) -> None:
        self._unsaved.clear()
        if self.source != "etcd":
            return
        saved_at = time.time() - self.age_s()
        snapshot = Snapshot(self._client.prefix, self.revision, saved_at, dict(self.entries))
        try:
            await asyncio.to_thread(snapshots.write, path, snapshot)
        except OSError as error:
            self._log.warning("snapshot_not_written", path=str(path), error=str(error))


def diff(old: Mapping[str, Stored], new: Mapping[str, Stored], revision: int) -> list[Change]:
    """What leads from `old` to `new`, listed at `revision`: deletes first, then writes in the order they were made."""
    deletes = [Change(key, None, revision) for key in old if key not in new]
    writes = [Change(key, stored.value, stored.revision) for key, stored in new.items() if old.get(key) != stored]
    return deletes + sorted(writes, key=lambda change: change.revision)
