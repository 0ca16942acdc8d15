"""Logs: one JSON object a line on stderr (readable text on a terminal); libraries' records come out the same way."""

import contextlib
import logging
import sys
import threading
from collections.abc import MutableMapping
from typing import Any, ClassVar, TextIO, cast

import structlog
from structlog.typing import Processor

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


def set_up(level: str, **bound: str) -> structlog.typing.FilteringBoundLogger:
    """Set this process's logs up; `bound` stands in every line. Gives the process's own logger.

    Libraries speak at warning and above, or from info when `level` is debug. Raises ValueError on another level.
    """
    set_level(level)
    stream = cast("TextIO", _Stream(sys.stderr))
    shared = _shared(bound)
    renderer = _renderer()
    structlog.configure(
        processors=[_drop_below, *shared, *renderer],
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    _route_libraries(shared, renderer, stream)
    threading.excepthook = _thread_failed
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger().bind()
    return logger


def set_level(level: str) -> None:
    """What is said from now on, by loggers that are bound already too. Raises ValueError on another level."""
    if level not in LEVELS:
        raise ValueError(f"log level {level!r}: known are {', '.join(LEVELS)}")
    _Least.level = LEVELS[level]
    logging.getLogger().setLevel(logging.INFO if level == "debug" else max(LEVELS[level], logging.WARNING))


class _Least:
    """From which level on this process speaks."""

    level: ClassVar[int] = LEVELS["info"]


def _drop_below(_logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if LEVELS.get(method, LEVELS["critical"]) < _Least.level:
        raise structlog.DropEvent
    return event


class _Stream:
    """A text stream that may break: who read the log may be gone, which is no reason for the service to fail."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _shared(bound: dict[str, str]) -> list[Processor]:
    def bind(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        for key, value in bound.items():
            event.setdefault(key, value)
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        bind,
    ]


def _renderer() -> list[Processor]:
    if sys.stderr.isatty():
        return [structlog.dev.ConsoleRenderer()]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


def _route_libraries(shared: list[Processor], renderer: list[Processor], stream: TextIO) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared, _as_message],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.captureWarnings(capture=True)


def _as_message(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A library's text is no event name: it becomes the message of library_spoke."""
    event["message"] = event["event"]
    event["event"] = "library_spoke"
    return event


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    name = failure.thread.name if failure.thread else "unknown"
    structlog.get_logger().error("thread_failed", thread=name, exc_info=failure.exc_value)
