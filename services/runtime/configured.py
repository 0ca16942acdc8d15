"""config.pbtxt beside a model's versions: read as Triton does, for what models/MODEL leaves open."""

import json
from collections.abc import Iterable, Mapping

import structlog

from services.core import triton_config
from services.core.imported import Imported
from services.core.model_spec import ModelSpec, filled
from services.core.spec import BadValueError
from services.runtime.source import CONFIG, Artifact, Look
from turnout.v1 import runtime_pb2 as pb

_MOST_CHARACTERS = 128 << 10  # reading as many takes a third of a second, in which nothing else is done

log = structlog.get_logger()


class Configured:
    """What the configuration of each model comes to; each is read once, and once said what of it is not done."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._read: dict[str, Imported | str] = {}  # or why it is refused
        self._filled: dict[str, tuple[ModelSpec, ModelSpec]] = {}  # the spec as it is, and with what it leaves open

    def take(self, model: str, look: Look, spec: ModelSpec | None) -> Mapping[str, Artifact]:
        """The versions of a look, unfit where the configuration asks for what is not done.

        A spec that names the framework knows better.
        """
        if look.config is None:
            self.forget(model)
        elif look.config != self._texts.get(model):
            self.forget(model)
            self._texts[model] = look.config
            self._read[model] = self._parsed(model, look.config, spec)
        fault = self._read.get(model)
        if not isinstance(fault, str) or (spec is not None and spec.framework is not None):
            return look.versions
        return {version: artifact._replace(fault=fault) for version, artifact in look.versions.items()}

    def forget(self, model: str) -> None:
        for held in (self._texts, self._read, self._filled):
            held.pop(model, None)  # type: ignore[attr-defined]

    def filled(self, specs: Mapping[str, ModelSpec]) -> dict[str, ModelSpec]:
        """Specs with what their models' configurations say where they are silent."""
        return {model: self._fill(model, spec) for model, spec in specs.items()}

    def notes(self, model: str) -> tuple[str, ...]:
        """What of the configuration is not done."""
        read = self._read.get(model, "")
        return read.notes if isinstance(read, Imported) else ((read,) if read else ())

    def tell(self, instances: Iterable[pb.Instance]) -> None:
        """Write into instances what their batcher should know."""
        for instance in instances:
            read = self._read.get(instance.model)
            batching = read.fields.get("batching") if isinstance(read, Imported) else None
            instance.batching = json.dumps(batching).encode() if batching else b""

    def _parsed(self, model: str, text: str, spec: ModelSpec | None) -> Imported | str:
        if len(text) > _MOST_CHARACTERS:
            return f"{CONFIG} has {len(text)} characters, over {_MOST_CHARACTERS}"
        try:
            read = triton_config.read((spec and spec.folder) or model, text)
        except BadValueError as error:
            log.warning("config_pbtxt_refused", model=model, reason=str(error))
            return f"{CONFIG}: {error}"
        if read.notes:
            log.info("config_pbtxt_not_all_done", model=model, notes=read.notes)
        return read

    def _fill(self, model: str, spec: ModelSpec) -> ModelSpec:
        read, held = self._read.get(model), self._filled.get(model)
        if not isinstance(read, Imported):
            return spec
        if held is not None and held[0] is spec:
            return held[1]
        try:
            result = filled(spec, read.fields)
        except BadValueError as error:
            log.warning("config_pbtxt_does_not_fit", model=model, reason=str(error))
            result = spec
        self._filled[model] = spec, result
        return result
