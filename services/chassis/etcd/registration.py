"""The keys of one process under one lease: written, written again when the lease was lost, gone with the process."""

import asyncio
import time
from contextlib import suppress
from typing import Any

from services.chassis.backoff import Backoff
from services.chassis.etcd.client import EtcdClient
from services.chassis.etcd.errors import EtcdError, EtcdUnavailableError, LeaseLostError


class Registration:
    """Desired keys; run() brings etcd there and keeps it there. Keys must be this process's alone."""

    def __init__(self, client: EtcdClient, *, ttl_s: int = 10, keepalive_s: float = 3, log: Any) -> None:
        self._client = client
        self._ttl_s = ttl_s
        self._keepalive_s = keepalive_s
        self._log = log
        self.lease = 0  # 0 = none now
        self._desired: dict[str, bytes] = {}
        self._pending: dict[str, None] = {}  # keys to write or delete, oldest wish first
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()  # everything desired is written
        self._settled.set()
        self._working = asyncio.Lock()
        self._kept_alive_at = 0.0
        self._closed = False
        self._failed_by: type[EtcdError] | None = None  # as last said in the log

    def put(self, key: str, value: bytes) -> None:
        """`key` is to hold `value` for as long as this process lives; written soon, in the order of the calls."""
        if self._desired.get(key) != value:
            self._desired[key] = value
            self._want(key)

    def remove(self, key: str) -> None:
        """`key` is to be gone, unless someone else has written it since."""
        if self._desired.pop(key, None) is not None:
            self._want(key)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything desired is written; False if that took longer."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._settled.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Returns after close() only."""
        backoff = Backoff()
        while not self._closed:
            wait_s = await self._try(backoff)
            if wait_s is not None:
                await asyncio.sleep(wait_s)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(self._next_keepalive()):
                    await self._wake.wait()

    async def close(self, timeout_s: float = 2.0) -> None:
        """Delete the own keys at once, by revoking the lease; where etcd does not answer, the ttl does it."""
        self._closed = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s), self._working:
                if self.lease:
                    await self._client.revoke(self.lease)
        except LeaseLostError:
            pass
        except (EtcdError, TimeoutError) as error:
            self._log.warning("lease_not_revoked", error=str(error) or "etcd did not answer in time", ttl_s=self._ttl_s)
        self.lease = 0

    def _want(self, key: str) -> None:
        self._pending.pop(key, None)
        self._pending[key] = None
        self._settled.clear()
        self._wake.set()

    def _next_keepalive(self) -> float:
        """On the loop's clock."""
        due_s = self._kept_alive_at + self._keepalive_s - time.monotonic()
        return asyncio.get_running_loop().time() + max(0.0, due_s)

    async def _try(self, backoff: Backoff) -> float | None:
        """One round of work; how long to wait if it failed."""
        backoff.begin()
        try:
            async with self._working:
                await self._work()
        except LeaseLostError as error:
            self._log.warning("lease_lost", error=str(error), keys=len(self._desired))
            self._lose()
        except EtcdError as error:
            if self._failed_by is not type(error):
                self._failed_by = type(error)
                self._log.warning("registration_failed", error=str(error), keys=len(self._pending))
        else:
            backoff.reset()
            self._failed_by = None
            return None
        return backoff.next_s()

    async def _work(self) -> None:
        """Keep the lease, then write what is pending. Raises EtcdError; what is not done stays pending."""
        self._wake.clear()
        while not self._closed:
            if not self.lease:
                self.lease = await self._client.grant(self._ttl_s)
                self._kept_alive_at = time.monotonic()
                self._log.info("lease_granted", lease=f"{self.lease:x}", keys=len(self._desired))
            elif time.monotonic() >= self._kept_alive_at + self._keepalive_s:
                await self._client.keep_alive(self.lease)
                self._kept_alive_at = time.monotonic()
            if not self._pending:
                self._settled.set()
                return
            await self._write(next(iter(self._pending)))

    async def _write(self, key: str) -> None:
        value = self._desired.get(key)
        try:
            if value is None:
                await self._client.delete_if_lease(key, self.lease)
            else:
                await self._client.put(key, value, lease=self.lease)
        except (EtcdUnavailableError, LeaseLostError):
            raise
        except EtcdError:  # this key is refused: the others come first from now on
            self._want(key)
            raise
        if self._desired.get(key) == value:  # else it changed meanwhile, and stays pending
            self._pending.pop(key, None)

    def _lose(self) -> None:
        """All keys went with the lease: what is desired is to be written again."""
        self.lease = 0
        self._pending = dict.fromkeys(self._desired)
        self._settled.clear()
