"""Files that come with a load, as a model repository of their own: named by content, whole at once, never changed."""

import hashlib
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from services.core.errors import ServingError
from services.core.load_request import checked_path
from services.core.names import checked_model_name

_INCOMING = "incoming-"


class Uploads:
    """ROOT/DIGEST/MODEL/VERSION/PATH. Pods must see the same folder at the same path."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def store(self, model: str, files: Mapping[str, bytes]) -> str:
        """Put `files` (VERSION/PATH -> content) there; gives the repository's URL. Raises ServingError."""
        checked_model_name(model)
        files = {checked_path(path): content for path, content in files.items()}
        folder = self._root / _digest(files)
        try:
            if (folder / model).is_dir():
                os.utime(folder / model)
                return folder.as_uri()
            self._root.mkdir(mode=0o755, parents=True, exist_ok=True)
            incoming = Path(tempfile.mkdtemp(prefix=_INCOMING, dir=self._root))
            try:
                _write(incoming, files)
                folder.mkdir(exist_ok=True)
                incoming.chmod(0o755)
                incoming.rename(folder / model)
            finally:
                shutil.rmtree(incoming, ignore_errors=True)
        except OSError as error:
            if (folder / model).is_dir():
                return folder.as_uri()  # somebody else has just stored the same
            raise ServingError(f"the files of model {model} cannot be stored: {error.strerror}") from None
        return folder.as_uri()

    def keep_only(self, model: str, url: str | None, until_s: float) -> None:
        """Remove every other upload of this model, but for those that came after `until_s`: others are loading them."""
        kept = Path(unquote(urlsplit(url).path)) if url else None
        for folder in self._root.glob("*"):
            if folder != kept and not folder.name.startswith(_INCOMING) and _stored_s(folder / model) <= until_s:
                shutil.rmtree(folder / model, ignore_errors=True)


def _stored_s(upload: Path) -> float:
    try:
        return upload.stat().st_mtime
    except OSError:
        return math.inf


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())


def _digest(files: Mapping[str, bytes]) -> str:
    total = hashlib.sha256()
    for path in sorted(files):
        name = path.encode()
        total.update(b"%d %s %d\n" % (len(name), name, len(files[path])))
        total.update(files[path])
    return total.hexdigest()[:32]
