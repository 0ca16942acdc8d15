"""What the router says of itself and its models; the same for gRPC and REST."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from services.core.errors import NotFoundError, UnavailableError
from services.core.names import version_order
from services.core.signature import TensorSpec
from services.router.choice import Choice
from services.router.table import Entry, Table


class ModelMetadata(NamedTuple):
    """A model as its callers see it: inputs that features fill are not among `inputs`."""

    name: str
    versions: Sequence[str]
    platform: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


class Catalogue:
    """Answers about models; a NamedTuple or dict out, ServingError when there is none."""

    def __init__(self, table: Table, release: str, not_ready: Callable[[], str | None]) -> None:
        self._table = table
        self._release = release
        self._not_ready = not_ready

    def is_ready(self) -> bool:
        return self._not_ready() is None

    def server_metadata(self) -> dict[str, Any]:
        return {"name": "turnout", "version": self._release, "extensions": []}

    def names(self) -> list[str]:
        return sorted(self._table.entries())

    def check_model_ready(self, model: str, version: str) -> None:
        """Raise NotFoundError for an unknown model or version, UnavailableError for one that is not ready."""
        self._choose(self._table.entry(model), version)

    def model_metadata(self, model: str, version: str) -> ModelMetadata:
        entry = self._table.entry(model)
        target = entry.targets[self._choose(entry, version).version]
        return ModelMetadata(
            name=model,
            versions=sorted(entry.targets, key=version_order),
            platform=target.signature.platform,
            inputs=target.caller_signature.inputs,
            outputs=target.signature.outputs,
        )

    def ready_models(self) -> dict[str, bool]:
        """Model -> whether its stable version has a ready replica."""
        ready = {}
        for name, entry in self._table.entries().items():
            try:
                self._choose(entry, "")
            except (UnavailableError, NotFoundError):
                ready[name] = False
            else:
                ready[name] = True
        return ready

    @staticmethod
    def _choose(entry: Entry, version: str) -> Choice:
        return entry.chooser.choose(version, b"", {}) if version else entry.chooser.stable()
