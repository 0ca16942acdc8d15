"""Stored rows -> columns: defaults, statuses and the policies of a view. Pure: `now` is an argument."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.core.arrays import NUMPY_DTYPE
from services.core.errors import NotFoundError, PreconditionError
from services.core.feature_spec import Column, FeatureViewSpec, OnMissing
from services.core.names import is_model_name
from services.core.spec import BadValueError
from services.feature_proxy import codec

_SHOWN_KEY_CHARACTERS = 64


class Status(IntEnum):
    """What became of one value; of several that hold, the largest is said."""

    PRESENT = 0
    NULL = 1  # the entity is known, this column of it is not: the default
    NOT_FOUND = 2  # no such entity, or its store could not be asked: the default
    OUTSIDE_MAX_AGE = 3  # older than ttl_s: the value or the default, as on_stale says


class Assembled(NamedTuple):
    """One array a wanted column, [rows, *column.shape], and a Status for each row and column, uint8 [rows, columns]."""

    columns: list[NDArray]
    statuses: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class FeatureView:
    """One accepted value of feature_views/VIEW, made ready for use."""

    name: str
    spec: FeatureViewSpec
    layout: codec.Layout
    defaults: tuple[NDArray, ...]

    @classmethod
    def compile(cls, name: str, spec: FeatureViewSpec) -> "FeatureView":
        """Raises BadValueError for what the spec alone cannot check: the name, sizes, defaults that do not fit."""
        if not is_model_name(name):
            raise BadValueError(f"{name!r} is no name of a feature view")
        return cls(name, spec, codec.Layout.of(spec.columns), tuple(_default(column) for column in spec.columns))

    def positions(self, names: Sequence[str]) -> tuple[int, ...]:
        """Where the wanted columns are; all when none is named. Raises PreconditionError naming a strange one."""
        if not names:
            return tuple(range(len(self.spec.columns)))
        known = {column.name: i for i, column in enumerate(self.spec.columns)}
        for name in names:
            if name not in known:
                raise PreconditionError(
                    f"feature view {self.name} has no column {name!r}; its columns are {', '.join(known)}"
                )
        return tuple(known[name] for name in names)

    def check_version(self, wanted: int) -> None:
        """Raise PreconditionError unless the view is at version `wanted`; 0 = any."""
        if wanted not in (0, self.spec.version):
            raise PreconditionError(
                f"feature view {self.name} is at version {self.spec.version}, but version {wanted} was asked for"
            )

    def row_bytes(self) -> int:
        return self.layout.dtype.itemsize

    def entity(self, key: bytes) -> str:
        """A key for messages: `patient_id=9999`."""
        return f"{self.spec.entity}={_shown(key)}"


def assemble(
    view: FeatureView,
    keys: Sequence[bytes],
    blobs: Sequence[bytes | None],
    wanted: Sequence[int],
    now: float,
    on_missing: OnMissing | None = None,
) -> Assembled:
    """The wanted columns of `keys`, whose stored blobs (None = unknown entity) lie in `blobs`, row by row.

    `on_missing` overrules the view's. `now` is in seconds since the Unix epoch. Raises NotFoundError for an unknown
    entity and PreconditionError for a stale one where the policy is `fail`, PreconditionError for a strange blob.
    """
    if None in blobs and (on_missing or view.spec.on_missing) == "fail":
        raise NotFoundError(f"feature view {view.name} has no entity {view.entity(keys[list(blobs).index(None)])}")
    found = np.fromiter((blob is not None for blob in blobs), np.bool_, len(blobs))
    records = _records(view, keys, blobs, found)
    stale = _stale(view, keys, records, found, now)
    if len(records) == len(keys) and not stale.any() and not records["nulls"].any():
        return _all_present(view, records, wanted)
    null = codec.nulls(view.layout, records)[:, list(wanted)]
    usable = ~null
    if view.spec.on_stale == "default":
        usable &= ~stale[:, np.newaxis]
    statuses = np.full((len(keys), len(wanted)), Status.NOT_FOUND, np.uint8)
    statuses[found] = np.where(stale[:, np.newaxis], Status.OUTSIDE_MAX_AGE, null * np.uint8(Status.NULL))
    columns = [_column(view, position, records, found, usable[:, i]) for i, position in enumerate(wanted)]
    return Assembled(columns, statuses)


def _all_present(view: FeatureView, records: NDArray, wanted: Sequence[int]) -> Assembled:
    """The usual case: nothing to look into row by row."""
    fields = view.layout.fields
    columns = [np.ascontiguousarray(records[fields[position]]) for position in wanted]
    return Assembled(columns, np.zeros((len(records), len(wanted)), np.uint8))


def _records(view: FeatureView, keys: Sequence[bytes], blobs: Sequence[bytes | None], found: NDArray) -> NDArray:
    try:
        return codec.read(view.layout, [blob for blob in blobs if blob is not None])
    except codec.BlobError as error:
        key = keys[int(np.flatnonzero(found)[error.row])]
        raise PreconditionError(f"feature view {view.name}, entity {view.entity(key)}: {error}") from None


def _stale(view: FeatureView, keys: Sequence[bytes], records: NDArray, found: NDArray, now: float) -> NDArray[np.bool_]:
    if view.spec.ttl_s == 0:
        return np.zeros(len(records), np.bool_)
    ages = now - records["event_time"]
    stale: NDArray[np.bool_] = ages > view.spec.ttl_s
    if view.spec.on_stale == "fail" and stale.any():
        row = int(np.argmax(stale))
        key = keys[int(np.flatnonzero(found)[row])]
        raise PreconditionError(
            f"feature view {view.name}: entity {view.entity(key)} is {ages[row]:.1f} s old,"
            f" over ttl_s {view.spec.ttl_s:g}"
        )
    return stale


def _column(view: FeatureView, position: int, records: NDArray, found: NDArray, usable: NDArray) -> NDArray:
    stored = records[view.layout.fields[position]]
    column = view.spec.columns[position]
    values = np.full((len(found), *column.shape), view.defaults[position], NUMPY_DTYPE[column.datatype])
    values[np.flatnonzero(found)[usable]] = stored[usable]
    return values


def _default(column: Column) -> NDArray:
    scalar = column.model_copy(update={"shape": ()})
    try:
        return codec.as_column(scalar, column.default)
    except BadValueError:
        raise BadValueError(f"columns: {column.name}: default {column.default:g} is no {column.datatype}") from None


def _shown(key: bytes) -> str:
    text = key.decode("utf-8", "replace")
    if not text.isprintable() or "\ufffd" in text:
        text = f"0x{key.hex()}"
    return text if len(text) <= _SHOWN_KEY_CHARACTERS else f"{text[:_SHOWN_KEY_CHARACTERS]}…"
