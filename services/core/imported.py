"""What another server's configuration of a model comes to in the words of models/MODEL."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message

from services.core.spec import BadValueError

_SHOWN = 300  # of a parser's complaint
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Imported:
    """Fields of models/MODEL; `notes` say what of the original means nothing here, or something else."""

    model: str
    fields: dict[str, Any]
    notes: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)  # label -> version, for routes/MODEL


def parse(text: str, make: Callable[[], M]) -> tuple[M, tuple[str, ...]]:
    """A message in protobuf's text format, and what of it is unknown. Raises BadValueError, with line and column."""
    try:
        return text_format.Parse(text, make()), ()
    except text_format.ParseError as error:
        is_news = '.Unread"' not in str(error)  # what lies in there means nothing anyway
        unknown = (f"{error} It is not read, nor any other unknown field.",) if is_news else ()
    try:
        return text_format.Parse(text, make(), allow_unknown_field=True), unknown
    except text_format.ParseError as error:
        raise BadValueError(f"no text of a protobuf message: {' '.join(str(error).split())[:_SHOWN]}") from None
    except RecursionError:
        raise BadValueError("no text of a protobuf message: too many messages in each other") from None
