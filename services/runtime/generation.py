"""The instances of one artifact of one model version: started together, swapped and let go together."""

from collections.abc import Callable
from typing import NamedTuple

from services.core.batching_spec import ControlInput, Padding, SequenceState
from services.core.declared import DeclaredSignature
from services.core.model_spec import Instances, ModelSpec
from services.core.onnx_spec import OnnxSettings
from services.core.text_spec import Text
from services.core.torch_spec import TorchSettings
from services.runtime.supervisor import Bounds, Supervisor
from services.runtime.wanted import Progress
from turnout.v1 import runtime_pb2 as pb


class Plan(NamedTuple):
    """What instances are made from: another plan means other processes."""

    model: str
    version: str
    digest: str
    framework: str
    file: str
    trusted: bool
    outputs: tuple[str, ...] = ()
    doubles: bool = False
    declared: DeclaredSignature | None = None
    pad_to: Padding | None = None
    states: tuple[SequenceState, ...] = ()
    controls: tuple[ControlInput, ...] = ()
    instances: Instances = Instances()  # but for their count
    loads: int = 0  # of the model's spec: another number asks for other processes
    signature_name: str = ""
    text: Text | None = None
    onnx: OnnxSettings = OnnxSettings()
    torch: TorchSettings | None = None
    decoupled: bool = False
    begins_with: tuple[object, ...] = ()  # limits that hold from a process's start, and its environment


def begins_with(spec: ModelSpec) -> tuple[object, ...]:
    """What of a spec a process is given once, for its life."""
    limits = spec.limits
    return limits.max_open_files, limits.max_tensor_bytes, tuple(sorted(spec.environment.items()))


Start = Callable[[Plan, ModelSpec, int], Supervisor]


class Generation:
    """Instances of one plan. `start` makes and runs the one of that number; it is called again when `count` grows."""

    def __init__(self, plan: Plan, spec: ModelSpec, start: Start) -> None:
        self.plan = plan
        self.spec = spec
        self.supervisors = [start(plan, spec, number) for number in range(spec.instances.count)]
        self._start = start

    def adjust(self, spec: ModelSpec, let_go: Callable[[Supervisor], None]) -> None:
        """Take a spec that needs no other processes: bounds, slots and count."""
        if spec == self.spec:
            return
        self.spec = spec
        for supervisor in self.supervisors:
            supervisor.adjust(Bounds.of(spec))
        count = spec.instances.count
        for extra in self.supervisors[count:]:
            let_go(extra)
        del self.supervisors[count:]
        self.supervisors += [self._start(self.plan, spec, number) for number in range(len(self.supervisors), count)]

    @property
    def progress(self) -> Progress:
        """READY once every instance that has not failed is; FAILED when all have."""
        states = {supervisor.state for supervisor in self.supervisors}
        if states == {pb.FAILED}:
            return Progress.FAILED
        return Progress.READY if pb.READY in states and states <= {pb.READY, pb.FAILED} else Progress.PENDING

    @property
    def is_serving(self) -> bool:
        """Whether any instance is ready."""
        return any(supervisor.state == pb.READY for supervisor in self.supervisors)

    @property
    def reason(self) -> str:
        """What the first instance that is not well says, else what one that is ready has to note."""
        notes = sorted((s.state == pb.READY, s.instance.reason) for s in self.supervisors if s.instance.reason)
        return notes[0][1] if notes else ""

    @property
    def is_stuck(self) -> bool:
        """Whether an instance waits for memory that does not come by itself."""
        return any(supervisor.is_stuck for supervisor in self.supervisors)

    @property
    def failures(self) -> int:
        """Loads that failed in a row, of the instance with the most."""
        return max(supervisor.failed_loads for supervisor in self.supervisors)

    def stop(self) -> None:
        for supervisor in self.supervisors:
            supervisor.stop()
