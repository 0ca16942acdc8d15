"""What is checked in is what the .proto files generate."""

import runpy
from pathlib import Path

PROTO = Path(__file__).parents[2] / "proto"


def sources(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*.py*")
        if path.suffix in {".py", ".pyi"}
    }


def test_generated_code_is_current(tmp_path: Path) -> None:
    runpy.run_path(str(PROTO / "generate.py"))["generate"](tmp_path)

    assert sources(tmp_path) == sources(PROTO / "gen")
