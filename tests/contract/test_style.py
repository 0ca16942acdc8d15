"""What the house style bounds: the size of files and functions, the shape of a service, the words of the project."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("router", "batcher", "runtime", "feature_proxy", "shadow")
FILES = sorted((ROOT / "services").rglob("*.py"))
# Spelled apart so that this file does not hold them.
STRANGE_WORDS = re.compile(
    "|".join(
        [
            "/" + r"work/",
            "/tm" + r"p/plan",
            r"\b(cl" + r"aude|anthr" + r"opic|chat" + r"gpt|sand" + r"box)\b",
            r"(?-i:\b(DES" + r"IGN|STY" + r"LE|PRO" + r"TOCOL|CA" + r"SES|PA" + r"RTS)(\.md\b| §))",
        ]
    ),
    re.IGNORECASE,
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_has_at_most_300_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_function_has_at_most_50_lines(path: Path) -> None:
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert [f.name for f in functions if (f.end_lineno or f.lineno) - f.lineno >= 50] == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_nothing_is_left_for_later(path: Path) -> None:
    assert re.findall(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", path.read_text()) == []


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("module", ["__init__", "__main__", "config", "app", "metrics"])
def test_every_service_has_the_same_shape(service: str, module: str) -> None:
    assert (ROOT / "services" / service / f"{module}.py").is_file()


def test_no_word_is_about_the_place_where_the_project_is_written() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    paths = [ROOT / path for path in listed.stdout.decode().split("\0") if path]

    assert paths
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in paths
        if path.is_file()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if STRANGE_WORDS.search(line)
    ]
    assert found == []
