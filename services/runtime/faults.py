"""What of a model's exception may be shown to a caller."""

import re

_PATH = re.compile(r"(?:/[\w.+@~-]+){2,}/?|[A-Za-z]:\\[\w\\.+@~-]+")
_MAX_CHARACTERS = 500


def describe(error: BaseException) -> str:
    """Type and text of an exception on one line, without paths of this host, at most 500 characters."""
    text = " ".join(_PATH.sub("(path)", str(error)[:10_000]).split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= _MAX_CHARACTERS else line[: _MAX_CHARACTERS - 1] + "…"
