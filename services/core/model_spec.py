"""models/MODEL in etcd: how a model is loaded, batched, limited, fed and guarded."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from services.core.batching_spec import Batching
from services.core.caller_spec import Pattern
from services.core.declared import DeclaredSignature
from services.core.names import KeySource, ModelName, Version, version_order
from services.core.onnx_spec import OnnxSettings
from services.core.roles import Role
from services.core.spec import Spec, explain
from services.core.text_spec import Text
from services.core.torch_spec import TorchSettings


class Placement(Spec):
    """Which pods load the model."""

    pool: str = Field(default="default", min_length=1)
    weight: float = Field(default=1, ge=0.001, le=1000)  # its share of a device that is busy, beside other models there


class VersionPolicy(Spec):
    """Which versions of the repository are loaded besides those that a route names: exactly one of the three."""

    latest: int | None = Field(default=None, ge=1)
    all: bool | None = None
    specific: tuple[Version, ...] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(choice is not None for choice in (self.latest, self.all, self.specific)) != 1 or self.all is False:
            raise ValueError('give exactly one of {"latest": N}, {"all": true}, {"specific": ["1", …]}')
        return self

    def choose(self, available: list[str]) -> set[str]:
        """The versions to load out of those `available` in the repository."""
        if self.specific is not None:
            return set(self.specific) & set(available)
        newest_first = sorted(available, key=version_order, reverse=True)
        return set(newest_first if self.all else newest_first[: self.latest])


class Limits(Spec):
    """Bounds of one request and of one worker."""

    max_request_rows: int | None = Field(default=None, ge=1)
    max_request_bytes: int = Field(default=64 << 20, ge=1)
    max_execution_ms: int = Field(default=30_000, ge=1)
    max_memory_bytes: int | None = Field(default=None, ge=1 << 20)
    # One input or output of one batch: a batch with a larger one is run in parts, a request with one refused.
    max_tensor_bytes: int | None = Field(default=None, ge=1)
    max_open_files: int = Field(default=1024, ge=64, le=1 << 20)  # of one worker; past it the worker is killed
    max_processes: int = Field(default=64, ge=1, le=4096)  # a worker and what it starts; past it all are killed
    max_restarts: int = Field(default=8, ge=0)  # in a row, without a healthy minute between, before giving up


class WarmUp(Spec):
    """What a version runs before it is ready."""

    file: str | None = None  # recorded requests in its folder; None = warmup.recorded or warmup.recorded.gz if there
    sizes: tuple[int, ...] = ()  # rows; () = 1, each preferred_batch_size and max_batch_size
    max_requests: int = Field(default=1000, ge=0, le=100_000)  # recorded, or of the model's own examples
    max_ms: int = Field(default=10_000, ge=0, le=600_000)  # nothing more is begun after it

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.file is not None and (self.file.startswith("/") or ".." in self.file.split("/")):
            raise ValueError(f"file {self.file!r} is not inside the version's folder")
        return self


_GpuNumber = Annotated[int, Field(ge=0)]
_GpuUuid = Annotated[str, Field(pattern=r"^(GPU|MIG)-[0-9A-Za-z/-]+$")]


class Instances(Spec):
    """The worker processes of a version in a pod, and what each runs on; as Triton's instance_group."""

    count: int = Field(default=1, ge=1, le=64)  # processes
    kind: Literal["auto", "cpu", "gpu"] = "auto"  # auto = a GPU where pod and framework have one, else the processor
    # Numbers as the pod sees its GPUs, or UUIDs ("GPU-…", "MIG-…"): each instance sees one, in turn; empty = all.
    gpus: tuple[_GpuNumber | _GpuUuid, ...] = ()
    threads: int | None = Field(default=None, ge=1, le=1024)  # of one batch; null = TURNOUT_RUNTIME_WORKER_THREADS
    numa_node: int | None = Field(default=None, ge=0)  # whose processor cores the instances keep to

    @model_validator(mode="after")
    def _gpus_are_used(self) -> Self:
        if self.gpus and self.kind == "cpu":
            raise ValueError("gpus are named, and kind is cpu")
        return self


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
VariableValue = Annotated[str, Field(pattern=r"^[^\x00]*$", max_length=4096)]
# What decides which code a process runs, or is decided elsewhere.
_NOT_OURS = ("LD_", "PYTHON", "GCONV_", "TURNOUT_", "CUDA_VISIBLE_DEVICES", "PATH", "HOME")


_SECRETS = ("header:authorization", "header:x-api-key", "header:cookie", "header:proxy-authorization")


class FeatureUse(Spec):
    """One input filled from a feature view: its columns, in order, joined along the last axis."""

    view: ModelName
    version: int = Field(default=0, ge=0)  # of the view; 0 = any
    entity: KeySource  # where the entity keys come from
    input: str = Field(min_length=1)
    columns: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_no_secret(self) -> Self:
        if self.entity.lower() in _SECRETS:
            raise ValueError(f"entity {self.entity!r} is what callers prove themselves with: name another header")
        return self


class Access(Spec):
    """Who may call."""

    anonymous: bool | None = None  # may anybody? null = as TURNOUT_ROUTER_ANONYMOUS says
    # Pattern of callers -> what they may do here, of what callers/ lets them do; null = all that callers/ lets them.
    callers: dict[Pattern, tuple[Role, ...]] | None = None
    explicit_versions: bool = True  # may a caller name a version or label?


Framework = Literal[
    "onnx", "sklearn", "xgboost", "lightgbm", "tensorflow", "mlflow", "torch", "transformers", "triton", "python"
]


class ModelSpec(Spec):
    """One model. Any field may be overridden for one version under `versions`."""

    repository: str | None = None  # URL of the model repository that holds MODEL/VERSION/…; None = the runtime's own
    folder: ModelName | None = None  # of the model in its repository; None = its name
    placement: Placement = Placement()
    version_policy: VersionPolicy = VersionPolicy(latest=1)
    default_version: Version | None = None  # serves when there is no route
    keep_previous: int = Field(default=1, ge=0, le=16)
    loaded: bool = True  # false: pods let go of it, routes and all; the index keeps it as "unloaded"
    loads: int = Field(default=0, ge=0)  # another number has pods load anew, beside what they hold
    framework: Framework | None = None  # detected from the artifact when absent
    trusted: bool = False  # pickles and Python files run code when loaded: only with the operator's word
    outputs: tuple[str, ...] = ()  # to give to requests that name them, where the framework can: docs/frameworks.md
    labels: dict[str, tuple[str, ...]] = {}  # output -> names of its classes, in order: for callers who ask for classes
    decoupled: bool = False  # any number of answers to a request (python); of generators it need not be said
    doubles: bool = False  # rows come and scores go as FP64 (scikit-learn, LightGBM)
    text: Text | None = None  # what a model of text is to do (transformers)
    signature: DeclaredSignature | None = None  # for artifacts that do not tell what they take and give
    onnx: OnnxSettings = OnnxSettings()  # how onnxruntime runs it
    signature_name: str = ""  # of the artifact's signatures, the one for requests that name none; "" = its usual one
    torch: TorchSettings | None = None  # how PyTorch runs it
    instances: Instances = Instances()
    environment: dict[VariableName, VariableValue] = {}  # of its worker processes; no place for secrets
    batching: Batching = Batching()
    warm_up: WarmUp = WarmUp()  # what a version runs before it is ready
    limits: Limits = Limits()
    default_deadline_ms: int = Field(default=30_000, ge=1, le=3_600_000)
    idempotent: bool = True  # may a request run again when a worker died with it?
    required_for_ready: bool = False
    features: tuple[FeatureUse, ...] = ()
    access: Access = Access()
    versions: dict[Version, dict[str, Any]] = {}

    @model_validator(mode="after")
    def _environment_is_harmless(self) -> Self:
        for name in self.environment:
            if name.startswith(_NOT_OURS):
                raise ValueError(f"environment: {name} cannot be set for a model")
        return self

    @model_validator(mode="after")
    def _streams_alone(self) -> Self:
        if self.decoupled and self.batching.sequence_batching is not None:
            raise ValueError("decoupled: a model with sequence_batching gives one answer to a request")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        inputs = [use.input for use in self.features]
        for name in inputs:
            if inputs.count(name) > 1:
                raise ValueError(f"features: input {name!r} is filled twice")
        for size in self.warm_up.sizes:
            if not 1 <= size <= max(1, self.batching.max_batch_size):
                raise ValueError(f"warm_up.sizes: {size} is not within 1 to max_batch_size")
        for version in self.versions:
            try:
                self.for_version(version)
            except ValidationError as error:
                raise ValueError(f"versions.{version}: {explain(error)}") from None
        return self

    def for_version(self, version: str) -> "ModelSpec":
        """The spec as it holds for one version: nested objects are overridden field by field."""
        override = self.versions.get(version)
        if not override:
            return self
        for name in ("versions", "loaded", "loads"):
            if name in override:
                raise ValueError(f"versions.{version}: cannot override {name}")
        base = self.model_dump(mode="json", exclude={"versions"}, exclude_unset=True)
        return ModelSpec.model_validate_json(json.dumps(merged(base, override)), strict=True)

    def warm_up_sizes(self) -> tuple[int, ...]:
        """Rows of the batches that a version runs before it is ready, ascending."""
        most = max(1, self.batching.max_batch_size)
        return tuple(sorted(set(self.warm_up.sizes or (1, *self.batching.preferred_batch_size, most))))

    def max_request_rows(self) -> int:
        """Rows a request may have; larger than max_batch_size is cut and rejoined."""
        if self.limits.max_request_rows is not None:
            return self.limits.max_request_rows
        return max(1, min(16 * self.batching.max_batch_size, self.batching.max_queue_size))


def filled(spec: ModelSpec, fields: Mapping[str, Any]) -> ModelSpec:
    """`spec` where `fields` say what it leaves open. Raises BadValueError where they do not fit each other."""
    held = spec.model_dump(mode="json", exclude_unset=True)
    return ModelSpec.parse(json.dumps(merged(fields, held)).encode())


def batched(spec: ModelSpec, batching: bytes) -> ModelSpec:
    """`spec`, its batching filled from JSON that lies beside the artifact; as it is where the two do not fit."""
    if not batching:
        return spec
    try:
        return filled(spec, {"batching": json.loads(batching)})
    except (ValueError, RecursionError):
        return spec


_WHOLE = {"version_policy", "signature"}  # overridden as a whole: one of three, and an order of names


def merged(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """`base` under `override`: nested objects field by field, but for those of _WHOLE."""
    fields = dict(base)
    for key, value in override.items():
        below = fields.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping) and key not in _WHOLE:
            fields[key] = merged(below, value)
        else:
            fields[key] = value
    return fields
