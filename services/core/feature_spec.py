"""feature_views/VIEW in etcd: where features live, what they are, and what a missing or stale one becomes."""

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from services.core.spec import Spec

ColumnType = Literal["BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FP32", "FP64"]
OnMissing = Literal["default", "fail"]


class Column(Spec):
    """One feature: a scalar, or an array of `shape`. `default` may be NaN."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    name: str = Field(min_length=1)
    datatype: ColumnType = "FP32"
    shape: tuple[int, ...] = ()
    default: float = Field(default=0, allow_inf_nan=True)


class FeatureViewSpec(Spec):
    """A set of columns under one entity key."""

    # sqlite:///PATH, memory://NAME or redis://HOST:PORT/DB
    store: str = Field(pattern=r"^(sqlite|memory|redis)://")
    entity: str = Field(min_length=1)  # name of the key, for messages
    columns: tuple[Column, ...]
    version: int = Field(default=1, ge=1)
    ttl_s: float = Field(default=0, ge=0)  # age past which a value is stale; 0 = for ever
    on_missing: OnMissing = "fail"  # an unknown entity
    on_stale: Literal["serve", "default", "fail"] = "serve"
    on_error: OnMissing = "fail"  # the store is down or too slow
    timeout_ms: float = Field(default=50, gt=0)  # one look-up in the store

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.columns:
            raise ValueError("columns: at least one is needed")
        names = [column.name for column in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"columns: name {name!r} is used twice")
        return self
