from pathlib import Path

import pytest

from services.cli.errors import CliError
from services.cli.repository import versions_in


def test_models_are_the_folders_that_hold_versions(tmp_path: Path) -> None:
    for name in ("a/1", "a/12", "b/3/model.savedmodel", "b/notes", ".git/1", "c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "model.onnx").touch()
    (tmp_path / "a" / "13").mkdir()  # its files are still to come
    (tmp_path / "d" / "1").mkdir(parents=True)

    assert versions_in(tmp_path) == {"a": ["1", "12"], "b": ["3"]}


def test_a_folder_without_models_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="holds no model"):
        versions_in(tmp_path)
    with pytest.raises(CliError, match="is not a folder"):
        versions_in(tmp_path / "nowhere")
