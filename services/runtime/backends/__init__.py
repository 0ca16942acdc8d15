"""Backends: one small module and class a framework, found by name so that a process imports only the one it needs."""

import importlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, cast

from numpy.typing import NDArray

from services.core.declared import DeclaredSignature
from services.core.onnx_spec import OnnxSettings
from services.core.signature import Signature
from services.core.text_spec import Text
from services.core.torch_spec import TorchSettings
from services.runtime.backends.folders import CHECKPOINT, MLFLOW, REMOTE, SAVED_MODEL, Folder

Arrays = Mapping[str, NDArray]
Device = Literal["cpu", "cuda", "auto"]
Run = Callable[[Arrays], dict[str, NDArray]]


class BadArtifactError(Exception):
    """An artifact that never can be loaded; the message has the file, what was expected and what was found."""


class NotThereError(Exception):
    """What the artifact points to, elsewhere, cannot be reached or used now: loading is tried again until it can."""


class ModelError(Exception):
    """Raised by `run` where callers shall get a status of its own: what else it raises is INTERNAL.

    `code` is a gRPC status (services.core.errors). `executed` is None where nobody knows.
    """

    def __init__(self, code: int, message: str, *, executed: bool | None = True) -> None:
        super().__init__(message)
        self.code = code
        self.executed = executed


@dataclass(frozen=True, slots=True)
class Options:
    """What a backend may do while it loads."""

    trusted: bool = False  # may the artifact run code of its own (a pickle)?
    threads: int = 1  # of one batch
    outputs: tuple[str, ...] = ()  # to give on request besides the usual ones: what a backend can, its module says
    doubles: bool = False  # rows come and scores go as FP64, where the framework computes in that
    declared: DeclaredSignature | None = None  # what the operator says that the artifact takes and gives
    # "cuda": the first GPU that the process sees, or BadArtifactError; "cpu": none, and none is seen; "auto": the first
    # GPU where the installed framework can use it, else the processor.
    device: Device = "cpu"
    signature_name: str = ""  # of the artifact's signatures, the one that answers where a request names none
    max_execution_ms: int = 30_000  # what runs longer is ended, with its process
    text: Text = field(default_factory=Text)  # what a model of text is to do
    onnx: OnnxSettings = field(default_factory=OnnxSettings)
    cache: Path | None = None  # a folder for what loads this artifact faster the next time; it may not be there
    torch: TorchSettings = field(default_factory=TorchSettings)
    decoupled: bool = False  # the operator says that one request is answered any number of times


class Backend(Protocol):
    """One loaded model. Not thread-safe: one batch after the other."""

    def load(self, artifact: Path, options: Options) -> Signature:
        """Load the artifact's file; of one that is a folder this is its mark. Raises BadArtifactError."""

    def run(self, inputs: Arrays) -> dict[str, NDArray]:
        """Every output of one batch. Inputs are read-only and match the signature; raises whatever the model raises."""

    def unload(self) -> None: ...


class ExemplaryBackend(Backend, Protocol):
    """A backend to whose model made-up rows (zeros and ones, texts "0" and "1") may mean nothing."""

    def examples(self) -> Iterable[Arrays]:
        """Inputs as callers send them, each with every input of the signature; asked once after `load`.

        They warm the model up, and two rows that differ tell whether it may batch.
        """


class ChoosyBackend(Backend, Protocol):
    """A backend that saves work where only some outputs are wanted."""

    def run_only(self, inputs: Arrays, outputs: Collection[str]) -> dict[str, NDArray]:
        """As `run`, with these outputs at least."""


class ManyBackend(Backend, Protocol):
    """A backend whose artifacts may have several signatures: `load` gives the usual one, which has the others."""

    def runs(self) -> Mapping[str, Run]:
        """As `run`, for each of Signature.more by its name."""

    def examples(self, name: str = "") -> Iterable[Arrays]:
        """As of an ExemplaryBackend, for one of Signature.more where `name` says so."""


class PatientBackend(Backend, Protocol):
    """A backend that waits for something else, and can give up in time."""

    def run_within(self, inputs: Arrays, outputs: Collection[str], left_s: float | None) -> dict[str, NDArray]:
        """As `run`, with these outputs at least; nobody waits for them longer than `left_s` (None = for ever)."""


class StreamingBackend(Backend, Protocol):
    """A backend whose `load` may give a decoupled signature; `run` then gives the first answer only, to warm it up."""

    def stream(self, inputs: Arrays) -> Iterator[dict[str, NDArray]] | AsyncIterator[dict[str, NDArray]]:
        """The answers to one request, each with some of the outputs; closed when nobody wants more."""


def refuse_unknown(artifact: Path, asked: tuple[str, ...], possible: Collection[str]) -> None:
    """Raise BadArtifactError when an output is asked for that the model cannot give."""
    unknown = [name for name in asked if name not in possible]
    if unknown:
        can = f"it can give {', '.join(possible)} besides the usual" if possible else "it gives the usual ones only"
        raise BadArtifactError(f"{artifact.name}: output {unknown[0]!r} is asked for; {can}")


OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


SILENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


class Kind(NamedTuple):
    """One framework: where its backend is, what it needs, and how its artifacts are named."""

    module: str
    needs: str
    suffixes: tuple[str, ...] = ()
    folder: Folder | None = None  # where an artifact is a folder: its mark is then what detection gives as the file
    environ: Mapping[str, str] = {}  # set before it is imported


KINDS: dict[str, Kind] = {
    "onnx": Kind("services.runtime.backends.onnx", "onnxruntime", (".onnx",)),
    "sklearn": Kind("services.runtime.backends.sklearn", "sklearn", (".skops", ".joblib", ".pkl")),
    "xgboost": Kind("services.runtime.backends.xgboost", "xgboost", (".json", ".ubj")),
    "lightgbm": Kind("services.runtime.backends.lightgbm", "lightgbm", (".txt", ".json")),
    "tensorflow": Kind("services.runtime.backends.tensorflow", "tensorflow", folder=SAVED_MODEL),
    "mlflow": Kind("services.runtime.backends.mlflow", "mlflow", folder=MLFLOW, environ=SILENT),
    "transformers": Kind("services.runtime.backends.transformers", "transformers", folder=CHECKPOINT, environ=OFFLINE),
    "triton": Kind("services.runtime.backends.triton", "tritonclient", folder=REMOTE),
    "torch": Kind("services.runtime.backends.torch", "torch", (".pt", ".pth", ".jit", ".ts", ".pt2", ".safetensors")),
    "python": Kind("services.runtime.backends.python", "packaging", (".py",)),
}


CPU_ONLY = frozenset({"sklearn", "xgboost", "lightgbm"})


def is_installed(framework: str) -> bool:
    return find_spec(KINDS[framework].needs) is not None


def backend_for(framework: str) -> Backend:
    """A new backend, importing its framework. Raises ImportError when that is not installed."""
    os.environ.update(KINDS[framework].environ)
    module = importlib.import_module(KINDS[framework].module)
    return cast("Backend", module.Model())
