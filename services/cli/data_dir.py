"""The folder in which a mesh on one machine keeps everything, and who runs in it."""

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from services.cli.errors import CliError
from services.core import keys
from services.core.spec import BadValueError, Spec

_LONGEST_RUN_BYTES = 45  # of the folder for sockets: a socket's path may have 107 bytes in all


class RunningProcess(Spec):
    """One process of a running mesh and where it listens."""

    name: str
    addresses: dict[str, str] = {}


class Running(Spec):
    """mesh.json: what `turnout up` runs here, for the commands that come after it."""

    pid: int
    is_ready: bool = False
    etcd: str  # comma-separated host:port
    etcd_prefix: str = keys.PREFIX
    processes: tuple[RunningProcess, ...] = ()

    def address(self, name: str, setting: str) -> str | None:
        """Where process `name` listens as `setting`: GRPC_ADDRESS and so on."""
        found = (each.addresses.get(setting) for each in self.processes if each.name == name)
        return next(found, None)


class DataDir:
    """Paths below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        self.models = self.root / "models"
        self.etcd = self.root / "etcd"
        self.logs = self.root / "logs"
        self.demo = self.root / "demo"
        self.features = self.root / "features.sqlite"
        self._lock = self.root / "lock"
        self._running = self.root / "mesh.json"
        self._owner = self.root / "repository"

    def create(self) -> Self:
        """Make the folder. Raises CliError where that is not possible."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.logs.mkdir(exist_ok=True)
        except OSError as error:
            raise CliError(f"cannot make the data folder {self.root}: {error.strerror}") from None
        return self

    def run_folder(self) -> Path:
        """Where sockets lie: here, or in a private folder with a shorter path."""
        folder = self.root / "run"
        if len(bytes(folder)) > _LONGEST_RUN_BYTES:
            digest = hashlib.sha256(bytes(self.root)).hexdigest()[:8]
            folder = Path(tempfile.gettempdir()) / f"turnout-{os.getuid()}-{digest}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.getuid():
                raise CliError(f"the folder for sockets, {folder}, belongs to someone else: remove it")
        except OSError as error:
            raise CliError(f"cannot make the folder for sockets, {folder}: {error.strerror}") from None
        return folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who runs a mesh here. Raises CliError naming who does already."""
        with self._lock.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CliError(
                    f"a mesh runs in {self.root} already ({self._holder()}): `turnout down --data-dir {self.root}`"
                    " stops it, another --data-dir and --port-offset start a second one"
                ) from None
            try:
                self.forget()
                yield
            finally:
                self.forget()

    def is_locked(self) -> bool:
        """Whether somebody runs a mesh here."""
        try:
            with self._lock.open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def claim(self, repository: str) -> None:
        """Keep a folder to the repository it began with, whose models its etcd holds. Raises CliError for another."""
        with contextlib.suppress(FileNotFoundError):
            before = self._owner.read_text().strip()
            if before != repository:
                raise CliError(f"{self.root} keeps a mesh of {before}: take another --data-dir for {repository}")
        self._owner.write_text(f"{repository}\n")

    def write(self, running: Running) -> None:
        """Say what runs here."""
        draft = self._running.with_suffix(".tmp")
        draft.write_bytes(running.dump())
        draft.replace(self._running)

    def read(self) -> Running | None:
        """What runs here now; None when nothing does."""
        if not self.is_locked():
            return None
        try:
            return Running.parse(self._running.read_bytes())
        except (OSError, BadValueError):
            return None

    def forget(self) -> None:
        """Nothing runs here any more."""
        self._running.unlink(missing_ok=True)

    def _holder(self) -> str:
        running = self.read()
        return f"process {running.pid}" if running else "it is starting or stopping"
