"""Files of Python code that an operator trusts: what they need is checked, then they run."""

import importlib.metadata
import platform
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from services.runtime.backends import BadArtifactError

_NOTES = re.compile(r"^# /// script\n((?:#(?: .*)?\n)+?)# ///$", re.MULTILINE)


def definition(artifact: Path, name: str) -> Any:
    """What a file defines as `name`, None if nothing; it runs for that, and can import other files of its folder.

    Raises BadArtifactError.
    """
    source = _source(artifact)
    _check_requirements(artifact, source)
    module = ModuleType(artifact.stem)
    module.__file__ = str(artifact)
    folder = str(artifact.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[module.__name__] = module  # pickle and dataclasses look for it there
    try:
        exec(compile(source, str(artifact), "exec"), module.__dict__)  # noqa: S102 - the operator said `trusted`
    except SyntaxError as error:
        raise BadArtifactError(f"{artifact.name}: expected Python code; line {error.lineno}: {error.msg}") from error
    except ImportError as error:
        raise BadArtifactError(
            f"{artifact.name} imports what this pod has not installed: {error}; note what it needs in its requirements"
        ) from error
    except Exception as error:
        raise BadArtifactError(f"{artifact.name}: it raised {type(error).__name__} while it ran: {error}") from error
    return getattr(module, name, None)


def _source(artifact: Path) -> str:
    try:
        return artifact.read_text()
    except UnicodeDecodeError as error:
        raise BadArtifactError(f"{artifact.name}: expected Python code in UTF-8, found {error}") from error


def _check_requirements(artifact: Path, source: str) -> None:
    notes = _NOTES.search(source)
    if notes is None:
        return
    try:
        wanted = tomllib.loads("".join(line[2:] or "\n" for line in notes[1].splitlines(keepends=True)))
        python = SpecifierSet(wanted.get("requires-python", ""))
        requirements = [Requirement(each) for each in wanted.get("dependencies", [])]
    except (tomllib.TOMLDecodeError, InvalidSpecifier, InvalidRequirement, TypeError, AttributeError) as error:
        raise BadArtifactError(f"{artifact.name}: its requirements cannot be read: {error}") from error
    faults = [] if python.contains(platform.python_version()) else [f"Python {python} (is {platform.python_version()})"]
    for requirement in requirements:
        if requirement.marker is None or requirement.marker.evaluate():
            faults += _fault(requirement)
    if faults:
        raise BadArtifactError(f"{artifact.name} needs what this pod has not installed: {', '.join(faults)}")


def _fault(requirement: Requirement) -> list[str]:
    """What is missing of one requirement, if anything."""
    wanted = f"{requirement.name}{requirement.specifier}"
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return [wanted]
    return [] if requirement.specifier.contains(version, prereleases=True) else [f"{wanted} (is {version})"]
