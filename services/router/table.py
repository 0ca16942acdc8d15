"""The route table: every model compiled for serving, rebuilt when desired state or the live replicas change."""

from collections.abc import Callable, Mapping, Sequence

from services.chassis.wire import signature_from_proto
from services.core.errors import InvalidRequestError, NotFoundError, UnavailableError
from services.core.model_spec import FeatureUse, ModelSpec
from services.core.names import is_internal, version_order
from services.core.signature import (
    SERVING_DEFAULT,
    Given,
    Signature,
    check_inputs,
    check_outputs,
    check_tensor,
    row_bytes,
)
from services.core.split import point_of, points_of_percent
from services.core.tensor import element_count
from services.router.choice import Chooser
from services.router.desired import Desired
from turnout.v1 import link_pb2 as pb

VersionKey = tuple[str, str]


class Target:
    """One ready version: how its requests are checked, fed and bounded."""

    __slots__ = (
        "_single",
        "batching",
        "caller_signature",
        "default_priority",
        "digest",
        "entity_inputs",
        "expected_wait_ns",
        "features",
        "heard_ns",
        "idempotent",
        "is_decoupled",
        "is_sequential",
        "labels",
        "max_request_rows",
        "model",
        "priority_levels",
        "samples",
        "signature",
        "spec",
        "version",
    )

    def __init__(self, served: pb.Served, spec: ModelSpec) -> None:
        self.model = served.model
        self.version = served.version
        self.digest = served.digest
        self.spec = spec
        self.batching = served.batching  # JSON, for what the spec leaves open of it
        self.signature = signature_from_proto(served.signature)
        self.features: tuple[FeatureUse, ...] = spec.features
        filled = frozenset(use.input for use in spec.features)
        self.caller_signature = self.signature.without(filled)
        # Inputs that only carry the keys of entities: the model itself has none of these names.
        self.entity_inputs = _entity_inputs(spec.features) - {i.name for i in self.caller_signature.inputs}
        self.max_request_rows = min(served.max_request_rows or spec.max_request_rows(), spec.max_request_rows())
        self.idempotent = spec.idempotent
        self.is_decoupled = self.signature.decoupled  # any number of answers to a request
        self.labels = spec.labels
        self.priority_levels = spec.batching.priority_levels  # 0 = none, or none that is known here
        self.default_priority = spec.batching.default_priority_level
        says = served.HasField("keeps_state")  # a peer of an earlier release does not
        # Keeps state from request to request: the workers that serve do, whatever the spec says of their successors.
        self.is_sequential = served.keeps_state if says else spec.batching.sequence_batching is not None
        self.samples: list[tuple[int, ...]] = []  # stage durations, taken by the metrics
        self.expected_wait_ns = 0  # in the queue, as the last reply said
        self.heard_ns = 0
        self._single = _single_input(self.caller_signature)

    def check(self, inputs: Sequence[Given], outputs: Sequence[str], name: str = "") -> int:
        """Rows of a request. Raises InvalidRequestError saying what is wrong and what would be right.

        `name`: of the signature that it asks for, if any.
        """
        if name and not self.is_usual(name):
            return self._checked_other(name, inputs, outputs)
        if outputs:
            check_outputs(self.model, self.signature, outputs)
        rows = self._fast_rows(inputs)
        if rows < 0:
            rows = self._checked_rows(inputs)
        return self._bounded(rows, self.signature)

    def is_usual(self, signature_name: str) -> bool:
        """Whether a request for the signature of that name is for the one that requests get that name none.

        A signature without a name of its own goes by TensorFlow's for such a one.
        """
        return signature_name in ("", self.signature.name or SERVING_DEFAULT)

    def _checked_other(self, name: str, inputs: Sequence[Given], outputs: Sequence[str]) -> int:
        """Rows of a request for a signature that is not the usual one."""
        signature = self.signature.named(name)
        if self.features or self.is_sequential:
            why = "features fill its inputs" if self.features else "it keeps state from request to request"
            raise InvalidRequestError(f"model {self.model} answers its usual signature only, not {name!r}: {why}")
        called = f"{self.model} ({name})"
        check_outputs(called, signature, outputs)
        return self._bounded(check_inputs(called, signature, inputs), signature)

    def _bounded(self, rows: int, signature: Signature) -> int:
        if rows > self.max_request_rows and signature.batches:
            raise InvalidRequestError(
                f"{rows} rows in one request; model {self.model} takes at most {self.max_request_rows}: send several"
            )
        return rows

    def _checked_rows(self, inputs: Sequence[Given]) -> int:
        """Rows by the full check; inputs that only carry entity keys are one row an element."""
        if not self.entity_inputs:
            return check_inputs(self.model, self.caller_signature, inputs)
        model_inputs = [given for given in inputs if given.name not in self.entity_inputs]
        counts = {self.model: check_inputs(self.model, self.caller_signature, model_inputs)} if model_inputs else {}
        for given in inputs:
            if given.name in self.entity_inputs:
                check_tensor(given)
                counts[given.name] = element_count(given.shape)
        if len(set(counts.values())) > 1:
            rows = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise InvalidRequestError(f"inputs differ in rows: {rows}")
        return next(iter(counts.values()), 1)

    def _fast_rows(self, inputs: Sequence[Given]) -> int:
        """Rows of the common request: one input of fixed row size, all as it should be; else -1."""
        single = self._single
        if single is None or len(inputs) != 1:
            return -1
        name, datatype, inner, size = single
        given = inputs[0]
        shape = given.shape
        if (
            given.name == name
            and given.datatype == datatype
            and len(shape) == len(inner) + 1
            and tuple(shape[1:]) == inner
            and len(given.data) == shape[0] * size
        ):
            return shape[0]
        return -1


def _entity_inputs(uses: Sequence[FeatureUse]) -> set[str]:
    return {use.entity.removeprefix("input:") for use in uses if use.entity.startswith("input:")}


def _single_input(signature: Signature) -> tuple[str, str, tuple[int, ...], int] | None:
    if len(signature.inputs) != 1 or not signature.batches:
        return None
    spec = signature.inputs[0]
    if spec.shape[:1] != (-1,):
        return None
    size = row_bytes(spec)
    return (spec.name, spec.datatype, spec.shape[1:], size) if size else None


class Entry:
    """One model: its spec, its route compiled, its ready versions."""

    __slots__ = (
        "allowed",
        "chooser",
        "deadline_ns",
        "has_sequences",
        "headers",
        "internal_names",
        "is_special",
        "name",
        "shadows",
        "spec",
        "targets",
    )

    def __init__(self, name: str, spec: ModelSpec, chooser: Chooser, targets: dict[str, Target]) -> None:
        self.name = name
        self.spec = spec
        self.chooser = chooser
        self.targets = targets
        self.deadline_ns = spec.default_deadline_ms * 1_000_000
        self.has_sequences = any(target.is_sequential for target in targets.values())
        self.is_special = self.has_sequences or any(target.is_decoupled for target in targets.values())
        uses = {use.entity.partition(":")[2].lower() for use in spec.features if use.entity.startswith("header:")}
        self.headers = chooser.headers() | uses  # whose values matter
        sources = {use.entity for use in spec.features} | ({chooser.sticky_by} if chooser.sticky_by else set())
        self.internal_names = frozenset(filter(is_internal, self.headers | sources))
        self.allowed: set[object] = set()  # rights of callers that may call it; as they are found to
        self.shadows: tuple[tuple[str, int], ...] = ()  # (candidate, points of POINTS)

    def is_open(self, *, by_default: bool) -> bool:
        """Whether anybody may call this model."""
        anonymous = self.spec.access.anonymous
        return by_default if anonymous is None else anonymous

    def shadow_candidates(self, key: bytes, served: str, point: Callable[[], int]) -> list[str]:
        """The candidates that get a copy of this request; by key where there is one, so a user is always in or out."""
        chosen = []
        for version, points in self.shadows:
            if version != served:
                where = point_of(f"{self.name}/shadow/{version}", key) if key else point()
                if where < points:
                    chosen.append(version)
        return chosen


class Table:
    """All models. Read on the hot path by `entry`; written by `rebuild`."""

    def __init__(self, on_target: Callable[[Target], None]) -> None:
        self._entries: dict[str, Entry] = {}
        self.closed: Callable[[], str | None] = lambda: None  # why nothing is known for sure yet, or any more
        self._on_target = on_target
        self._targets: dict[VersionKey, tuple[bytes, ModelSpec, Target]] = {}

    def entry(self, model: str) -> Entry:
        """Raises NotFoundError for a model that nobody has configured; UnavailableError where that is not known."""
        entry = self._entries.get(model)
        if entry is None:
            if reason := self.closed():
                raise UnavailableError(f"this router takes no requests: {reason}")
            known = ", ".join(sorted(self._entries)) or "none"
            raise NotFoundError(f"model {model[:128]!r} is unknown; known are {known}")
        return entry

    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    def rebuild(self, desired: Desired, served: Mapping[VersionKey, pb.Served]) -> None:
        """Compile everything anew; targets whose version did not change keep their samples and clocks."""
        ready: dict[str, dict[str, Target]] = {}
        for (model, version), message in served.items():
            spec = desired.models.get(model)
            if spec is not None:
                ready.setdefault(model, {})[version] = self._target(message, spec.for_version(version))
        entries = {}
        for name, spec in desired.models.items():
            targets = ready.get(name, {})
            route = desired.routes.get(name)
            known = desired.known_versions(name)
            default = spec.default_version or max(targets, key=version_order, default=None)
            entry = Entry(name, spec, Chooser(name, route, default, known, set(targets)), targets)
            if route is not None:
                entry.shadows = tuple((v, points_of_percent(percent)) for v, percent in route.shadow.items() if percent)
            entries[name] = entry
        self._entries = entries
        self._targets = {key: value for key, value in self._targets.items() if key in served}

    def _target(self, message: pb.Served, spec: ModelSpec) -> Target:
        key = (message.model, message.version)
        encoded = message.SerializeToString(deterministic=True)
        known = self._targets.get(key)
        if known is not None and known[0] == encoded and known[1] == spec:
            return known[2]
        target = Target(message, spec)
        self._targets[key] = (encoded, spec, target)
        self._on_target(target)
        return target
