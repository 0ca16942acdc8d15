import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SERVICES = Path(__file__).parents[3] / "services"
EVENT = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LEVELS = {"debug", "info", "warning", "error", "critical", "exception"}


def logged(code: str, level: str = "info") -> list[dict[str, Any]]:
    """What a process that sets its logs up and runs `code` writes to stderr."""
    program = (
        "import logging, threading, warnings, structlog\nfrom services.chassis import logs\n"
        f"log = logs.set_up({level!r}, service='tiny', instance='tiny-1')\n{code}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_line_is_one_json_object_with_service_instance_level_and_time() -> None:
    (line,) = logged("log.info('version_loaded', version='digits/1', took_s=0.5)")

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {
        "event": "version_loaded",
        "level": "info",
        "service": "tiny",
        "instance": "tiny-1",
        "version": "digits/1",
        "took_s": 0.5,
    }


def test_loggers_made_at_import_speak_the_same_way() -> None:
    (line,) = logged("structlog.get_logger().warning('link_lost', peer='b-1')")

    assert (line["event"], line["service"], line["peer"]) == ("link_lost", "tiny", "b-1")


@pytest.mark.parametrize(
    ("level", "events"),
    [("debug", ["a", "b", "c"]), ("info", ["b", "c"]), ("warning", ["c"]), ("error", [])],
)
def test_the_level_decides_what_is_said(level: str, events: list[str]) -> None:
    lines = logged("log.debug('a'); log.info('b'); log.warning('c')", level)

    assert [line["event"] for line in lines] == events


def test_what_libraries_log_comes_out_as_json_too_from_warning_on() -> None:
    (line,) = logged(
        "lib = logging.getLogger('some.library'); lib.info('chatter'); lib.warning('slow %d ms', 70, exc_info=None)"
    )

    assert (line["event"], line["message"], line["logger"]) == ("library_spoke", "slow 70 ms", "some.library")
    assert (line["level"], line["service"]) == ("warning", "tiny")


def test_python_warnings_are_logged() -> None:
    (line,) = logged("warnings.warn('old', DeprecationWarning)")

    assert line["logger"] == "py.warnings"
    assert "old" in line["message"]


@pytest.mark.parametrize("speaker", ["log", "logging.getLogger('library')"])
def test_an_exception_keeps_its_traceback_within_its_line(speaker: str) -> None:
    (line,) = logged(f"try:\n    1 / 0\nexcept ZeroDivisionError:\n    {speaker}.exception('task_failed')\n")

    assert "ZeroDivisionError: division by zero" in line["exception"]


def test_a_failed_thread_is_logged() -> None:
    (line,) = logged("t = threading.Thread(target=lambda: 1 / 0, name='render'); t.start(); t.join()")

    assert (line["event"], line["thread"]) == ("thread_failed", "render")
    assert "ZeroDivisionError" in line["exception"]


def test_values_that_json_lacks_do_not_lose_the_line() -> None:
    (line,) = logged("import pathlib; log.info('opened', path=pathlib.Path('/x'), raw=b'1')")

    assert (line["path"], line["raw"]) == ("/x", "b'1'")


def events(path: Path) -> list[str]:
    """Every literal event name that the module at `path` logs."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and node.args]
    return [
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in LEVELS
        and ast.unparse(call.func.value).split(".")[-1].removeprefix("_") in {"log", "get_logger()"}
        and isinstance(call.args[0], ast.Constant)
    ]


@pytest.mark.parametrize("package", sorted(path.name for path in SERVICES.iterdir() if path.is_dir()))
def test_every_event_is_a_snake_case_fact(package: str) -> None:
    named = {
        f"{path.relative_to(SERVICES)}: {event}"
        for path in (SERVICES / package).rglob("*.py")
        for event in events(path)
    }

    assert {line for line in named if not EVENT.fullmatch(line.partition(": ")[2])} == set()
