"""What a client's program says of its checks, as JSON on stdout: check -> side -> what failed ("" = nothing)."""

import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any


def refused(call: Callable[[], object], fault: type[Exception], *says: str) -> None:
    """Assert that `call` raises `fault`, whose text has every one of `says`."""
    try:
        call()
    except fault as error:
        text = f"{error}"
        assert all(each in text for each in says), f"{text!r} lacks one of {says}"
    else:
        raise AssertionError(f"not refused: {says}")


def run(names: str, program: Mapping[str, Any], sides: Mapping[str, Any]) -> None:
    """The named checks of a program, on every side; none is kept from running by the fault of another."""
    checks = {name: program[name] for name in names.split(",")}
    report = {name: {of: _fault(check, side) for of, side in sides.items()} for name, check in checks.items()}
    print(json.dumps(report))  # noqa: T201 - the answer


def _fault(check: Callable[[Any], None], side: Any) -> str:
    try:
        check(side)
    except Exception:  # noqa: BLE001 - told, and judged by the test
        return traceback.format_exc(limit=-4)
    return ""
