"""The live feature views: what feature_views/ of etcd says, bad values kept out. No I/O."""

from collections.abc import Iterable

from services.chassis.etcd import Change
from services.core.errors import PreconditionError, UnavailableError
from services.core.feature_spec import FeatureViewSpec
from services.core.keys import FEATURE_VIEWS
from services.core.names import is_model_name
from services.core.registry import ConfigStatus
from services.core.spec import BadValueError
from services.feature_proxy.feature_view import FeatureView
from services.feature_proxy.stores import check_url


class Views:
    """Views by name. A refused value leaves the last good one in place."""

    def __init__(self) -> None:
        self._views: dict[str, FeatureView] = {}
        self._accepted: dict[str, int] = {}
        self._refused: dict[str, tuple[int, str]] = {}
        self._revision = 0
        self.loaded = False  # set once etcd or a snapshot has been heard, be it of no views

    def apply(self, changes: Iterable[Change]) -> None:
        """Take in what changed, all at once."""
        for change in changes:
            self._revision = max(self._revision, change.revision)
            if change.key.startswith(FEATURE_VIEWS):
                # A name that is no text would break logs, status and metrics: there it stands escaped, and refused.
                name = change.key.removeprefix(FEATURE_VIEWS).encode("utf-8", "backslashreplace").decode()
                self._apply(name, change)

    def get(self, name: str) -> FeatureView:
        """Raises PreconditionError for an unknown view, UnavailableError before anything was loaded."""
        view = self._views.get(name)
        if view is not None:
            return view
        if not self.loaded:
            raise UnavailableError("feature views are not loaded yet")
        if name in self._refused:
            raise PreconditionError(f"feature view {name} has no valid value: {self._refused[name][1]}")
        known = ", ".join(sorted(self._views)) or "none"
        raise PreconditionError(f"there is no feature view {name!r}; known are {known}")

    def recover(self, name: str, value: bytes, revision: int, refused_at: int) -> bool:
        """Put an earlier value in the place of a view that never had a good one here; False when it is refused too.

        True also when the recovery is not wanted any more: the key has changed since `refused_at`.
        """
        if name in self._views or self._refused.get(name, (0, ""))[0] != refused_at:
            return True
        try:
            self._views[name] = _compile(name, value)
        except BadValueError:
            return False
        self._accepted[name] = revision
        return True

    def without_good_value(self) -> list[tuple[str, int]]:
        """(name, revision) of each refused value that has no predecessor here but may have one in etcd."""
        return [
            (name, revision)
            for name, (revision, _) in self._refused.items()
            if name not in self._views and is_model_name(name)
        ]

    def refused(self) -> dict[str, str]:
        """Name -> why its newest value is not in use."""
        return {name: reason for name, (_, reason) in self._refused.items()}

    def stores(self) -> frozenset[str]:
        return frozenset(view.spec.store for view in self._views.values())

    def names(self) -> frozenset[str]:
        return frozenset(self._views)

    def status(self) -> ConfigStatus:
        return ConfigStatus(
            revision=self._revision,
            accepted={FEATURE_VIEWS + name: revision for name, revision in self._accepted.items()},
            refused={FEATURE_VIEWS + name: reason for name, reason in self.refused().items()},
        )

    def _apply(self, name: str, change: Change) -> None:
        self._refused.pop(name, None)
        if change.value is None:
            self._views.pop(name, None)
            self._accepted.pop(name, None)
            return
        try:
            self._views[name] = _compile(name, change.value)
            self._accepted[name] = change.revision
        except BadValueError as error:
            self._refused[name] = (change.revision, str(error))


def _compile(name: str, value: bytes) -> FeatureView:
    spec = FeatureViewSpec.parse(value)
    check_url(spec.store)
    return FeatureView.compile(name, spec)
