"""A pod that is only said to be there: for each models/MODEL it writes what a runtime would make of it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

import structlog

from services.chassis.etcd import Change, EtcdClient, Mirror
from services.core import keys
from services.core.desired_state import UNLOADED
from services.core.model_spec import ModelSpec
from services.core.registry import Inventory, ServiceRecord

Versions = Mapping[str, Mapping[str, Any]]  # version -> fields of InventoryVersion


class SaidPod:
    """`makes`: model -> what it makes of a spec; versions of others are not there."""

    def __init__(self, client: EtcdClient, name: str) -> None:
        self.makes: dict[str, Callable[[ModelSpec], Versions]] = {}
        self.lets_go: dict[str, Callable[[], None]] = {}  # model -> what else goes when it is unloaded
        self._client = client
        self._name = name
        self._inventory: dict[str, Any] = {"models": {}, "specs": {}}
        self._news = asyncio.Event()
        self._mirror = Mirror(client, [keys.MODELS], self._take, snapshot=None, log=structlog.get_logger())

    async def __aenter__(self) -> Self:
        await self._client.put(keys.service("runtime", self._name), ServiceRecord(state="ready").dump())
        self._news.set()
        self._tasks = [asyncio.create_task(self._mirror.run()), asyncio.create_task(self._write())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.delete(keys.service("runtime", self._name))
        await self._client.delete(keys.status("runtime", self._name, "inventory"))

    def _take(self, changes: list[Change]) -> None:
        for change in changes:
            model = change.key.removeprefix(keys.MODELS)
            if model not in self.makes or change.value is None:
                continue
            spec = ModelSpec.parse(change.value)
            if spec.loaded:
                self._inventory["models"][model] = self.makes[model](spec)
            else:
                self._inventory["models"][model] = {"1": {"state": "UNAVAILABLE", "reason": UNLOADED}}
                self.lets_go[model]()
            self._inventory["specs"][model] = change.revision
        self._news.set()

    async def _write(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            value = Inventory.model_validate(self._inventory).dump()
            await self._client.put(keys.status("runtime", self._name, "inventory"), value)
