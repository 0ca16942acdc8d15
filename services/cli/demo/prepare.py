"""The demo's models, rows and features in the data folder: made once, then reused until the recipe changes."""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from services.cli.data_dir import DataDir
from services.cli.demo.keys import VIEW, feature_view
from services.cli.errors import CliError

_PACKAGES = ("numpy", "scikit-learn", "skops", "xgboost-cpu", "onnx")
_SOURCES = ("train.py", "graphs.py", "held_out.py", "keys.py")
_TRAIN_S, _LOAD_S = 600.0, 120.0
# Tiny models: threads would only wait for each other.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def recipe() -> str:
    """A hash of what the demo is made from: code of ours, and the versions of what trains."""
    total = hashlib.sha256()
    for name in _SOURCES:
        total.update(Path(__file__).with_name(name).read_bytes())
    for package in _PACKAGES:
        try:
            total.update(f"{package}=={version(package)}\n".encode())
        except PackageNotFoundError:
            raise CliError(f"the demo needs {package}: pip install 'turnout[demo]' (or `make venv`)") from None
    return total.hexdigest()


def is_prepared(data: DataDir) -> bool:
    """Whether everything that `prepare` writes is there, made from today's recipe."""
    try:
        manifest = json.loads((data.demo / "manifest.json").read_bytes())
        files = [data.root / name for name in manifest["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return manifest.get("recipe") == recipe() and all(file.is_file() for file in files)


async def prepare(data: DataDir, say: Callable[[str], None]) -> None:
    """Train, and put all of it in its place; `say` gets a line a step. Raises CliError."""
    draft = data.root / "demo.new"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    manifest = data.demo / "manifest.json"
    manifest.unlink(missing_ok=True)
    await _run("training", ["services.cli.demo.train", str(draft)], None, _TRAIN_S, say)
    models = _install_models(draft / "models", data.models)
    data.demo.mkdir(exist_ok=True)
    for file in [entry for entry in draft.iterdir() if entry.is_file()]:
        file.replace(data.demo / file.name)
    shutil.rmtree(draft, ignore_errors=True)
    await _load_features(data, say)
    written = [*models, data.features, data.demo / "held_out.npz", data.demo / "digit.npy"]
    names = [str(file.relative_to(data.root)) for file in written]
    manifest.write_text(json.dumps({"recipe": recipe(), "files": names}, indent=1))


def columns(data: DataDir) -> list[str]:
    """The feature columns of a patient, in the order that the model was trained with."""
    names: list[str] = json.loads((data.demo / "columns.json").read_bytes())
    return names


def _install_models(source: Path, target: Path) -> list[Path]:
    """Move every version to the model repository, in one step each; other models there are left alone."""
    installed = []
    for artifact in sorted(source.glob("*/*/*")):
        version_folder = target / artifact.parent.relative_to(source)
        version_folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(version_folder, ignore_errors=True)
        artifact.parent.replace(version_folder)
        installed.append(version_folder / artifact.name)
    return installed


async def _load_features(data: DataDir, say: Callable[[str], None]) -> None:
    """Hand the patients' rows to the feature proxy's own loader."""
    spec = data.demo / "tumor_features.json"
    spec.write_bytes(feature_view(data.features, columns(data)).dump())
    module = ["services.feature_proxy.load", "--view", VIEW, "--spec", str(spec)]
    await _run("loading features", module, data.demo / "patients.jsonl", _LOAD_S, say)


async def _run(what: str, module: list[str], stdin: Path | None, timeout_s: float, say: Callable[[str], None]) -> None:
    """Run a module to its end, a line of its output after the other. Raises CliError with its last words."""
    with open(stdin or os.devnull, "rb") as source:  # noqa: ASYNC230, PTH123 - opening a local file
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *module,
            stdin=source,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
        )
    try:
        async with asyncio.timeout(timeout_s):
            code, words = await _follow(process, say)
    except TimeoutError:
        raise CliError(f"{what} took longer than {timeout_s:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    if code:
        raise CliError(f"{what} failed: {words or f'code {code}'}")


async def _follow(process: asyncio.subprocess.Process, say: Callable[[str], None]) -> tuple[int, str]:
    """Pass its lines on; its exit code, and the last line of its complaints."""
    if process.stdout is None or process.stderr is None:
        raise RuntimeError("the process was started without pipes")
    complaints = asyncio.create_task(process.stderr.read())
    async for line in process.stdout:
        say(line.decode(errors="replace").rstrip())
    lines = (await complaints).decode(errors="replace").strip().splitlines()
    return await process.wait(), lines[-1] if lines else ""
