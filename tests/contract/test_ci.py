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


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS.keys())
@pytest.mark.parametrize("ci", ["true", ""])
def test_a_skip_fails_in_ci_and_only_there(tmp_path: Path, source: str, ci: str) -> None:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "test_skips.py").write_text(source)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", ".", "."],
        cwd=tmp_path,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ("1 skipped" in done.stdout) == (ci == "")
    assert (done.returncode in {1, 2}) == (ci == "true")
    assert ("skipped in CI, where a skip is a failure: " in done.stdout) == (ci == "true")
