"""What lies in a model repository that somebody wants served."""

from pathlib import Path

from services.cli.errors import CliError
from services.core.names import is_model_name, is_version


def versions_in(repository: Path) -> dict[str, list[str]]:
    """Model -> versions of every MODEL/VERSION/ below `repository`. Raises CliError when there is none."""
    if not repository.is_dir():
        raise CliError(f"--repository {repository} is not a folder")
    found: dict[str, list[str]] = {}
    for folder in sorted(repository.glob("*/*")):
        if folder.is_dir() and is_version(folder.name) and is_model_name(folder.parent.name):
            found.setdefault(folder.parent.name, []).append(folder.name)
    if not found:
        raise CliError(f"--repository {repository} holds no model: expected MODEL/VERSION/file, VERSION a number")
    return found
