"""The pages of cases and of clients name tests that there are."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cases.md").read_text()
CASES = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| seen in ")]
CLIENTS = (ROOT / "docs" / "clients.md").read_text().splitlines()
CHECKLIST = [line for line in CLIENTS if re.match(r"\| \d+ \|", line)]


@cache
def functions(path: str) -> frozenset[str]:
    """The names of a test file's tests."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("row", CASES + CHECKLIST, ids=lambda row: row.split("|")[2].strip())
def test_a_case_is_held_by_tests_that_exist(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)

    assert named
    assert len(named) == row.count("::")
    assert [f"{path}::{name}" for path, name in named if name not in functions(path)] == []


def test_no_line_of_the_protocols_checklist_is_left_out() -> None:
    numbers = [int(row.split("|")[1]) for row in CHECKLIST]

    assert numbers == list(range(1, 15))
