"""Which routers hold what was written."""

import asyncio
from typing import NamedTuple

from services.chassis.etcd import EtcdClient
from services.core import keys
from services.core.registry import ConfigStatus

APPLIED_S = 3.0  # within which routers usually have judged a change
_POLL_S = 0.05


class Applied(NamedTuple):
    """How many routers there are, how many hold a revision of a key, and why others refused it."""

    routers: int
    accepted: int
    refused: tuple[str, ...]


async def where_applied(client: EtcdClient, key: str, revision: int) -> Applied:
    """What the live routers say about a key at `revision` or later."""
    listing = await client.list(f"{keys.STATUS}router/")
    statuses = [ConfigStatus.parse(each.value) for name, each in listing.entries.items() if name.endswith("/routes")]
    refused = tuple(status.refused[key] for status in statuses if status.refused_at.get(key, 0) >= revision)
    accepted = sum(status.accepted.get(key, 0) >= revision for status in statuses)
    return Applied(len(statuses), accepted, refused)


async def until_applied(client: EtcdClient, key: str, revision: int, timeout_s: float) -> Applied:
    """As `where_applied`, once every router has judged it, or the time is over."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        state = await where_applied(client, key, revision)
        if state.refused or state.accepted == state.routers or asyncio.get_running_loop().time() > deadline:
            return state
        await asyncio.sleep(_POLL_S)
