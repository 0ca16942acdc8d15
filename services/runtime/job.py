"""What a worker process is told when it starts."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from services.core.batching_spec import ControlInput, Padding, SequenceState
from services.core.declared import DeclaredSignature
from services.core.model_spec import WarmUp
from services.core.names import ModelName, Version
from services.core.onnx_spec import OnnxSettings
from services.core.spec import Spec
from services.core.text_spec import Text
from services.core.torch_spec import TorchSettings


class Job(Spec):
    """One instance: its model, where it listens, and the three files that it inherits from its supervisor."""

    id: str
    model: ModelName
    version: Version
    digest: str
    framework: str
    file: Path  # the artifact
    socket: Path  # where the worker's link listens
    trusted: bool = False
    outputs: tuple[str, ...] = ()  # besides the usual ones
    doubles: bool = False
    declared: DeclaredSignature | None = None  # what the operator says that it takes and gives
    text: Text | None = None  # what a model of text is to do
    max_execution_ms: int = 30_000  # as it was at the start
    torch: TorchSettings | None = None
    decoupled: bool = False  # any number of answers to a request
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    visible_gpus: str | None = None  # CUDA_VISIBLE_DEVICES; null = as the supervisor sees them
    cpus: tuple[int, ...] = ()  # processor cores to keep to; empty = all
    signature_name: str = ""
    onnx: OnnxSettings = OnnxSettings()
    cache: Path | None = None  # folder for what a backend keeps of this artifact for the next start
    threads: int = 1
    user: int | None = None  # to run as; null = as the supervisor
    group: int | None = None
    fault: str = Field(default="", exclude=True)  # why this pod has no place for it
    environment: dict[str, str] = Field(default={}, exclude=True)  # of its process; not in its command line
    max_open_files: int = 1024
    max_tensor_bytes: int | None = None
    warm_up: WarmUp = WarmUp()
    warm_up_sizes: tuple[int, ...] = (1,)  # rows
    pad_to: Padding | None = None
    states: tuple[SequenceState, ...] = ()  # what sequences keep between their runs
    controls: tuple[ControlInput, ...] = ()  # what the batcher tells the model of them
    quiet_s: float = 1.0  # silence after which a worker that drains is done
    log_level: str = "info"
    # Filled in when the process is started.
    parent: int = 0  # process id of the supervisor
    reports_fd: int = -1  # socket: reports go out, its end means that the supervisor is gone
    stamp_fd: int = -1  # memory file: when the batch in progress began
    listen_fd: int = -1  # socket that listens at `socket`

    @property
    def folder(self) -> Path:
        """Of the version: it holds the artifact and what lies beside it."""
        return next((place for place in (self.file, *self.file.parents) if place.name == self.digest), self.file.parent)

    @property
    def filled_inputs(self) -> frozenset[str]:
        """Inputs of the model that no request has: the mesh fills them in."""
        names = {control.name for control in self.controls} | {state.input_name for state in self.states}
        return frozenset(names | (self.pad_to.told() if self.pad_to is not None else set()))
