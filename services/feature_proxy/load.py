"""Writes feature rows into the store of a view.

As a process: `python -m services.feature_proxy.load --view NAME --spec FILE < ROWS`, FILE holding the value of
feature_views/NAME and ROWS one JSON object a line: {"entity": 17, "values": {"age": 4.5}, "event_time": 1750000000}.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from services.core.feature_spec import FeatureViewSpec
from services.core.spec import BadValueError
from services.feature_proxy import codec
from services.feature_proxy.feature_view import FeatureView
from services.feature_proxy.stores import MAX_KEY_BYTES, OnlineStore, StoreError, open_store

Entity = int | str | bytes
_WRITE_ROWS = 10_000  # held in memory at a time


class Row(NamedTuple):
    """The values of one entity; a column that is None or absent is null."""

    entity: Entity
    values: Mapping[str, Any]
    event_time: float  # seconds since the Unix epoch


def entity_key(entity: Entity) -> bytes:
    """The key under which an entity is stored: text as UTF-8, integers in decimal, bytes as they are."""
    if isinstance(entity, bool) or not isinstance(entity, int | str | bytes):
        raise BadValueError("the entity is neither an integer nor text nor bytes")
    key = entity if isinstance(entity, bytes) else str(entity).encode()
    if not 0 < len(key) <= MAX_KEY_BYTES:
        raise BadValueError(f"the entity has {len(key)} bytes, not 1 to {MAX_KEY_BYTES}")
    return key


async def load(store_url: str, view_name: str, spec: FeatureViewSpec, rows: Iterable[Row]) -> int:
    """Write rows; how many that were.

    Raises BadValueError naming the entity and column that does not fit, StoreError when the store cannot be written.
    """
    view = FeatureView.compile(view_name, spec)
    store = open_store(store_url)
    try:
        return await _write(store, view, rows)
    finally:
        await store.close()


async def _write(store: OnlineStore, view: FeatureView, rows: Iterable[Row]) -> int:
    count, rest = 0, iter(rows)
    while some := list(islice(rest, _WRITE_ROWS)):
        await store.put_many(view.name, dict(_packed(view, row) for row in some))
        count += len(some)
    return count


def _packed(view: FeatureView, row: Row) -> tuple[bytes, bytes]:
    try:
        return entity_key(row.entity), codec.pack(view.layout, row.values, row.event_time)
    except BadValueError as error:
        raise BadValueError(f"{view.spec.entity}={row.entity!r}: {error}") from None


def _row(number: int, line: str, now: float) -> Row:
    try:
        value = json.loads(line)
        return Row(value["entity"], dict(value["values"]), float(value.get("event_time", now)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadValueError(
            f'line {number}: expected {{"entity": …, "values": {{COLUMN: …}}, "event_time": SECONDS}}: {error!r}'
        ) from None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m services.feature_proxy.load", description=__doc__)
    parser.add_argument("--view", required=True)
    parser.add_argument("--spec", required=True, type=Path, help="file with the value of feature_views/VIEW")
    given = parser.parse_args(arguments)
    now = time.time()
    try:
        spec = FeatureViewSpec.parse(given.spec.read_bytes())
        rows = (_row(number, line, now) for number, line in enumerate(sys.stdin, 1) if line.strip())
        count = asyncio.run(load(spec.store, given.view, spec, rows))
    except (BadValueError, StoreError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{count} rows written to feature view {given.view}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
