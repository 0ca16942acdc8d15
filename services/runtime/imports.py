"""Imports of frameworks that look for companions which a worker never uses, and which take seconds and memory."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

# By framework: what it tries to import, and no backend of it uses.
UNUSED = {
    "xgboost": ("sklearn", "pandas", "pyarrow", "narwhals"),
    "lightgbm": ("sklearn", "pandas", "pyarrow", "matplotlib", "dask"),
    "tensorflow": ("scipy", "pandas", "matplotlib", "sklearn", "rich", "narwhals", "PIL", "pyarrow"),  # by way of Keras
}


class _Hidden(MetaPathFinder):
    """Finds nothing, and ends the search, for some packages."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = frozenset(packages)

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._packages:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


@contextmanager
def hidden(*packages: str) -> Iterator[None]:
    """Imports inside find none of `packages`, as if they were not installed; what is imported already stays."""
    finder = _Hidden(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
