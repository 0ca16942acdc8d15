"""What lies in a model repository that somebody wants served."""

from pathlib import Path

from services.cli.errors import CliError
from services.core.names import is_model_name, is_version


def versions_in(repository: Path) -> dict[str, list[str]]:
    """Model -> versions of every MODEL/VERSION/ below `repository` that holds something. Raises CliError for none."""
    if not repository.is_dir():
        raise CliError(f"--repository {repository} is not a folder")
    found: dict[str, list[str]] = {}
    for folder in sorted(repository.glob("*/*")):
        if is_version(folder.name) and is_model_name(folder.parent.name) and _holds_files(folder):
            found.setdefault(folder.parent.name, []).append(folder.name)
    if not found:
        raise CliError(f"--repository {repository} holds no model: expected MODEL/VERSION/file, VERSION a number")
    return found


def _holds_files(folder: Path) -> bool:
    """Whether there is anything to load: a folder made ahead of its files is no version yet."""
    return any(entry.is_file() and not entry.name.startswith(".") for entry in folder.rglob("*"))
