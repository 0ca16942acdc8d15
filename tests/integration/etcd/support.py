"""What the tests of etcd share: an unreliable network, the administrator's tool, a mirror under observation."""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from structlog.testing import CapturingLogger

from services.chassis.etcd import Change, EtcdClient, EtcdProcess, Mirror, MirrorTiming, find_etcd

QUICK = MirrorTiming(progress_s=0.2, dead_s=1.0, snapshot_after_s=0.3, save_every_s=0.02)


async def eventually(check: Callable[[], bool], timeout_s: float = 8.0) -> float:
    """Seconds until `check` held; fails if it never does."""
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < timeout_s, "it did not happen"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


def etcdctl(etcd: EtcdProcess, *words: str, user: str = "") -> str:
    program = find_etcd()
    assert program is not None
    command = [
        str(program.with_name("etcdctl")),
        f"--endpoints={etcd.endpoint}",
        *([f"--user={user}"] if user else []),
        *words,
    ]
    environment = os.environ | {"ETCDCTL_API": "3"}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=10).stdout


async def compact(etcd: EtcdProcess, revision: int) -> None:
    await asyncio.to_thread(etcdctl, etcd, "compaction", str(revision))


def events(log: CapturingLogger) -> list[str]:
    return [call.args[0] for call in log.calls]


class Observed:
    """A running mirror and everything that it delivered."""

    def __init__(
        self, client: EtcdClient, prefixes: Sequence[str], snapshot: Path | None, timing: MirrorTiming
    ) -> None:
        self.log = CapturingLogger()
        self.lists: list[list[Change]] = []
        self.mirror = Mirror(client, prefixes, self.lists.append, snapshot=snapshot, log=self.log, timing=timing)

    @property
    def changes(self) -> list[tuple[str, bytes | None]]:
        return [(change.key, change.value) for changes in self.lists for change in changes]

    @property
    def values(self) -> dict[str, bytes]:
        return {key: stored.value for key, stored in self.mirror.entries.items()}


@contextlib.asynccontextmanager
async def observed(
    client: EtcdClient,
    *,
    prefixes: Sequence[str] = ("",),
    snapshot: Path | None = None,
    timing: MirrorTiming = QUICK,
    loaded: bool = True,
) -> AsyncIterator[Observed]:
    it = Observed(client, prefixes, snapshot, timing)
    running = asyncio.create_task(it.mirror.run())
    try:
        if loaded:
            async with asyncio.timeout(5):
                await it.mirror.loaded.wait()
        yield it
        assert not running.done()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
