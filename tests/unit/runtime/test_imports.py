"""What a framework looks for and a worker never uses is not found, and only there."""

import subprocess
import sys

import pytest

from services.runtime.imports import UNUSED, hidden


def test_a_hidden_package_is_not_found_inside_and_is_found_again_outside() -> None:
    sys.modules.pop("wave", None)
    with hidden("wave", "xdrlib"):
        with pytest.raises(ModuleNotFoundError, match="No module named 'wave'") as caught:
            import wave  # noqa: PLC0415
        import colorsys  # noqa: PLC0415 - others are found
    import wave  # noqa: PLC0415

    assert caught.value.name == "wave"
    assert (wave.__name__, colorsys.__name__) == ("wave", "colorsys")


@pytest.mark.parametrize("framework", UNUSED)
def test_a_backend_does_without_what_is_hidden(framework: str) -> None:
    code = (
        "import sys\n"
        "from services.runtime.backends import backend_for\n"
        "from services.runtime.imports import UNUSED, hidden\n"
        f"with hidden(*UNUSED[{framework!r}]):\n"
        f"    backend_for({framework!r})\n"
        f"print([name for name in UNUSED[{framework!r}] if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)

    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
