"""A small JSON file in which a runtime keeps something over restarts. A convenience: its loss is logged, not raised."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import structlog

T = TypeVar("T")

log = structlog.get_logger()


class KeptJson:
    """`what` is kept in `file`, as log events call it. Everything blocks."""

    def __init__(self, file: Path, what: str, *, folder_mode: int = 0o777) -> None:
        self._file = file
        self._folder_mode = folder_mode  # of a folder that has to be made
        self._ignored, self._not_written = f"{what}_ignored", f"{what}_not_written"

    def read(self, parse: Callable[[Any], T]) -> T | None:
        """What `parse` makes of the value; None where there is no file, or not one that it can read."""
        try:
            return parse(json.loads(self._file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning(self._ignored, path=str(self._file), reason=str(error))
            return None

    def write(self, text: str) -> None:
        """Replace the file by this JSON, whole or not at all."""
        incoming = self._file.with_suffix(".new")
        try:
            self._file.parent.mkdir(mode=self._folder_mode, parents=True, exist_ok=True)
            incoming.write_text(text)
            incoming.replace(self._file)
        except OSError as error:
            log.warning(self._not_written, path=str(self._file), reason=str(error))
