"""Base of every value that operators put into etcd."""

from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError


class BadValueError(ValueError):
    """A value that does not say what its key needs; the message names each field and what it should be."""


class Spec(BaseModel):
    """A frozen, strictly checked JSON value: unknown fields are refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The value in `raw` (JSON, UTF-8). Raises BadValueError naming every wrong field."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise BadValueError(explain(error)) from error

    def dump(self) -> bytes:
        """The value as compact JSON without fields that hold their default."""
        return self.model_dump_json(exclude_defaults=True, by_alias=True).encode()


def explain(error: ValidationError) -> str:
    """One line for all faults of a value: `field: what is wrong`, joined by semicolons."""
    return "; ".join(
        f"{'.'.join(str(part) for part in fault['loc']) or 'value'}: {_reason(fault['type'], fault['msg'])}"
        for fault in error.errors(include_url=False, include_input=False)
    )


def _reason(kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return "unknown field"
    return message.removeprefix("Value error, ")
