"""The rule of continuous integration: a skipped test is a failed one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "in_a_test": "import pytest\ndef test_it() -> None:\n    pytest.skip('no server here')\n",
    "by_a_mark": "import pytest\n@pytest.mark.skip(reason='no server here')\ndef test_it() -> None: ...\n",
    "of_a_module": "import pytest\npytest.skip('no server here', allow_module_level=True)\n",
}


@pytest.mark.parametrize("ci", ["true", ""])
def test_a_skip_fails_in_ci_and_only_there(tmp_path: Path, ci: str) -> None:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    for name, source in SKIPS.items():
        (tmp_path / f"test_skip_{name}.py").write_text(source)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".",
         "--continue-on-collection-errors", "."],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )  # fmt: skip

    told = done.stdout.count("skipped in CI, where a skip is a failure: ")
    if ci:
        assert done.returncode in {1, 2}
        assert told >= len(SKIPS)
        assert "1 failed, 2 errors" in done.stdout
    else:
        assert done.returncode == 0
        assert told == 0
        assert "3 skipped" in done.stdout
