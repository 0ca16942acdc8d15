"""Regenerate proto/gen from the .proto files beside this script; run by `make proto`."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

HERE = Path(__file__).resolve().parent


def generate(destination: Path) -> None:
    """Write message, stub and typing modules of every .proto file below `destination`."""
    destination.mkdir(parents=True, exist_ok=True)
    sources = sorted(str(path.relative_to(HERE)) for path in HERE.rglob("*.proto") if "gen" not in path.parts)
    arguments = [
        f"-I{HERE}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={destination}",
        f"--pyi_out={destination}",
        f"--grpc_python_out={destination}",
        *sources,
    ]
    # In a process of its own: its protobuf must not meet that of a framework that has been imported here.
    if subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=False, timeout=60).returncode:
        raise SystemExit("protoc failed; its message is above")
    for folder in {path.parent for path in destination.rglob("*_pb2.py")}:
        (folder / "__init__.py").touch()
    (destination / "turnout" / "__init__.py").touch()
    for stub in destination.rglob("*_pb2_grpc.py"):
        if "Stub" not in stub.read_text():
            stub.unlink()  # a file of messages only has no service to generate


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "gen")
