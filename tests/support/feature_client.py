"""What is around a feature proxy: rows in a store, and the other end of its link, which asks and waits for answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import numpy as np

from services.chassis.link import Link, LinkClient
from services.core import arrays
from services.core.feature_spec import FeatureViewSpec
from services.feature_proxy.load import Entity, Row, load
from turnout.v1 import feature_pb2, link_pb2

TIMEOUT_S = 10.0


async def load_rows(
    store_url: str,
    view_name: str,
    spec: FeatureViewSpec,
    rows: Mapping[Entity, Mapping[str, Any]],
    event_time: float | None = None,
) -> int:
    """Write {entity: {column: value}} as of `event_time` (None = now); how many rows that were."""
    at = time.time() if event_time is None else event_time
    return await load(store_url, view_name, spec, (Row(entity, values, at) for entity, values in rows.items()))


class FeatureClient:
    """A LinkHandler."""

    def __init__(self) -> None:
        self.drains: list[str] = []
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[feature_pb2.FeatureAnswer]] = {}
        self._link: Link | None = None
        self._opened = asyncio.Event()

    def opened(self, link: Link) -> None:
        self._link = link
        self._opened.set()

    def received(self, _link: Link, frame: link_pb2.Frame) -> None:
        self.drains += [frame.drain.reason] if frame.HasField("drain") else []
        for answer in frame.features:
            self._waiting.pop(answer.id).set_result(answer)

    def closed(self, _link: Link, _reason: str) -> None:
        self._opened.clear()

    def send(
        self, *views: feature_pb2.ViewLookup, deadline_s: float = 0
    ) -> tuple[int, "asyncio.Future[feature_pb2.FeatureAnswer]"]:
        """Look `views` up; the look-up's id and its answer."""
        assert self._link is not None
        message = self._link.frame_for(sum(view.ByteSize() for view in views) + 64).lookups.add()
        message.id = next(self._ids)
        message.deadline_us = round(deadline_s * 1e6)
        message.views.extend(views)
        answer: asyncio.Future[feature_pb2.FeatureAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = answer
        return message.id, answer

    def cancel(self, lookup_id: int) -> None:
        assert self._link is not None
        self._link.frame_for(8).cancels.append(lookup_id)

    async def ask(self, *views: feature_pb2.ViewLookup, deadline_s: float = 0) -> feature_pb2.FeatureAnswer:
        async with asyncio.timeout(TIMEOUT_S):
            await self._opened.wait()
            return await self.send(*views, deadline_s=deadline_s)[1]


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[FeatureClient]:
    client = FeatureClient()
    link = LinkClient(address, client, link_pb2.Hello(service="router", instance="test", protocol=1))
    link.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await client._opened.wait()
        yield client
    finally:
        await link.close()


def look_up(view: str, *entities: Entity, version: int = 0, columns: Sequence[str] = ()) -> feature_pb2.ViewLookup:
    message = feature_pb2.ViewLookup(view=view, version=version, columns=columns)
    for entity in entities:
        kind = {int: "int_value", str: "string_value", bytes: "bytes_value"}[type(entity)]
        message.entities.add(**{kind: entity})
    return message


def columns_of(values: feature_pb2.ViewValues) -> dict[str, list[Any]]:
    return {c.name: arrays.decode(c.datatype, c.shape, c.data).tolist() for c in values.columns}


def statuses_of(values: feature_pb2.ViewValues) -> list[list[int]]:
    return np.frombuffer(values.statuses, np.uint8).reshape(-1, len(values.columns)).tolist()
