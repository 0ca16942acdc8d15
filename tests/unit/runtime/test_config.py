"""Settings of a runtime."""

from pathlib import Path

import pytest

from services.chassis.config import BadConfigError
from services.runtime.config import RuntimeConfig


def test_a_run_folder_whose_sockets_would_not_fit_is_refused() -> None:
    with pytest.raises(BadConfigError, match=r"run_dir .* has 81 bytes; sockets leave room for 60"):
        RuntimeConfig.load("TURNOUT_RUNTIME_", {"TURNOUT_RUNTIME_RUN_DIR": "/" + "r" * 80})


def test_copies_of_two_pods_lie_apart() -> None:
    folders = {RuntimeConfig(run_dir=Path(f"/run/{pod}"), data_dir=Path("/d")).artifacts_dir() for pod in ("a", "b")}

    assert folders == {Path("/d/artifacts/a"), Path("/d/artifacts/b")}
