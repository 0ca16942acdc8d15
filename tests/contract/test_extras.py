"""A service starts from its own extra of pyproject.toml: it needs no package that only another extra brings."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {"services", "turnout", "inference"}
SERVICES = ("router", "batcher", "runtime", "feature-proxy", "shadow", "cli")


def needed(service: str) -> set[str]:
    """Top-level packages that a service imports before it has read its settings; what is imported late is optional."""
    found: set[str] = set()
    waiting = list(entries(ROOT / "services" / service.replace("-", "_")))
    assert waiting
    seen = set(waiting)
    while waiting:
        for name in imports(waiting.pop()):
            top = name.partition(".")[0]
            if top not in OURS:
                found.add(top)
            elif (path := source(name)) is not None and path not in seen:
                seen.add(path)
                waiting.append(path)
    return found - set(sys.stdlib_module_names)


def entries(folder: Path) -> Iterator[Path]:
    """The modules that a process of the service starts with; the demo is an extra of its own."""
    for path in folder.rglob("*.py"):
        if path.parent.name == "demo":
            continue
        if path.name == "__main__.py" or '__name__ == "__main__"' in path.read_text():
            yield path


def imports(path: Path) -> Iterator[str]:
    """Names that a module imports at its top, where a missing package stops it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def source(name: str) -> Path | None:
    """The file of one of our modules; None for a name inside one."""
    base = (ROOT if name.startswith("services") else ROOT / "proto" / "gen").joinpath(*name.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def brought(service: str) -> set[str]:
    """Distributions that pyproject.toml installs for a service."""
    lines = PROJECT["dependencies"] + PROJECT["optional-dependencies"][service]
    return {canonical(re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0]) for line in lines}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_only_what_its_extra_brings(service: str) -> None:
    distributions = packages_distributions()
    here = brought(service)

    missing = {
        package: [canonical(name) for name in distributions.get(package, ())]
        for package in needed(service)
        if not here & {canonical(name) for name in distributions.get(package, ())}
    }
    assert missing == {}
