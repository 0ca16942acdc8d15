"""What the router says of itself and its models; the same for gRPC and REST."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from services.core.errors import NotFoundError, UnavailableError
from services.core.model_spec import batched
from services.core.names import version_order
from services.core.signature import TensorSpec
from services.router.choice import Choice
from services.router.config_codec import model_config
from services.router.statistics import Statistics
from services.router.table import Entry, Table
from turnout.triton import model_config_pb2
from turnout.v1 import link_pb2

# What Triton calls what is here; its clients go by these words.
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "parameters",
    "schedule_policy",
    "sequence",
    "statistics",
)
# Where listeners of callers offer it.
MANAGEMENT = frozenset({"logging", "model_repository", "model_repository(unload_dependents)", "trace"})
SHARED_MEMORY = "system_shared_memory"  # where it is switched on


class ModelMetadata(NamedTuple):
    """A model as its callers see it: inputs that features fill are not among `inputs`."""

    name: str
    versions: Sequence[str]
    platform: str
    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]


class Catalogue:
    """Answers about models; a NamedTuple, dict or message out, ServingError when there is none.

    The ladder: NotFoundError for a model or version that nobody has, UnavailableError for one that is not ready,
    and for all of them while the router itself takes no requests.
    """

    def __init__(
        self,
        table: Table,
        release: str,
        statistics: Statistics,
        *,
        not_ready: Callable[[], str | None],
        closed: Callable[[], str | None],
    ) -> None:
        """`closed`: why no model takes requests; `not_ready`: that, or why this router should get none."""
        self._table = table
        self._release = release
        self._not_ready = not_ready
        self._closed = closed
        self._statistics = statistics
        self.extensions = set(EXTENSIONS)

    def is_ready(self) -> bool:
        return self._not_ready() is None

    def server_metadata(self) -> dict[str, Any]:
        return {"name": "turnout", "version": self._release, "extensions": sorted(self.extensions)}

    def names(self) -> list[str]:
        return sorted(self._table.entries())

    def check_model_ready(self, model: str, version: str) -> None:
        """Raise unless it takes requests."""
        self._choose(self._table.entry(model), version)
        if reason := self._closed():
            raise UnavailableError(f"this router takes no requests: {reason}")

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

    def model_config(self, model: str, version: str) -> model_config_pb2.ModelConfig:
        """How a ready version is called, batched and run, in Triton's words."""
        entry = self._table.entry(model)
        target = entry.targets[self._choose(entry, version).version]
        return model_config(model, batched(target.spec, target.batching), target.caller_signature)

    async def model_statistics(self, model: str, version: str) -> list[link_pb2.VersionStats]:
        """What the fleet has counted until now: of all models, of one, or of one version of it."""
        self._counted(model, version)
        await self._statistics.ask()
        return [self._statistics.ledger.total(*each) for each in self._counted(model, version)]

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

    def _counted(self, model: str, version: str) -> Iterator[tuple[str, str]]:
        """The versions that are asked for: those that are ready, and those that were. Raises for unknown names."""
        if model and version:
            return iter([(model, self._table.entry(model).chooser.named(version))])
        entries = [self._table.entry(model)] if model else [self._table.entries()[name] for name in self.names()]
        return self._versions(entries)

    def _versions(self, entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
        for entry in entries:
            counted = self._statistics.ledger.versions(entry.name) & entry.chooser.versions()
            yield from ((entry.name, version) for version in sorted(counted | entry.targets.keys(), key=version_order))

    @staticmethod
    def _choose(entry: Entry, version: str) -> Choice:
        return entry.chooser.choose(version, b"", {}) if version else entry.chooser.stable()
