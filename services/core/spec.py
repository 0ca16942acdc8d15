"""Base of every value that operators put into etcd."""

from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

_MOVED = {"count": '; write "instances": {"count": 2}'}  # fields that once were elsewhere


class BadValueError(ValueError):
    """A value that does not say what its key needs; the message names each field and what it should be."""


class Spec(BaseModel):
    """A frozen, strictly checked JSON value: unknown fields are refused by name, and "64" or true is no number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """The value in `raw` (JSON, UTF-8). Raises BadValueError naming every wrong field."""
        try:
            return cls.model_validate_json(raw, strict=True)
        except ValidationError as error:
            raise BadValueError(explain(error)) from error

    def dump(self) -> bytes:
        """The value as compact JSON without fields that hold their default."""
        return self.model_dump_json(exclude_defaults=True, by_alias=True).encode()


def explain(error: ValidationError) -> str:
    """One line for all faults of a value: `field: what is wrong`, joined by semicolons."""
    return "; ".join(
        _fault([str(part) for part in fault["loc"] if part != "[key]"], fault["type"], fault["msg"])
        for fault in error.errors(include_url=False, include_input=False)
    )


def _fault(path: list[str], kind: str, message: str) -> str:
    if kind == "json_invalid":
        return message.replace("Invalid JSON", "not JSON", 1)
    if kind == "extra_forbidden":
        message = "unknown field" + _MOVED.get(".".join(path), "")
    if kind == "value_error":
        message = message.removeprefix("Value error, ")
        if not path:  # about the whole value: the message names the fields
            return message
    return f"{'.'.join(path) or 'value'}: {message}"
