"""How this pod's workers run beside each other: whose children they are, as which user, in which control groups."""

import asyncio
import grp
import os
import pwd
import stat
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from services.chassis.config import BadConfigError
from services.chassis.process import hide_memory
from services.core.model_spec import Limits
from services.runtime.cgroup import Cgroup, Cgroups
from services.runtime.config import RuntimeConfig
from services.runtime.environment import environment
from services.runtime.job import Job
from services.runtime.nursery import Nursery
from services.runtime.priority import step_of
from services.runtime.process import WorkerProcess

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Hosting:
    """Shared by all workers of a process."""

    nursery: Nursery = field(default_factory=Nursery)
    cgroups: Cgroups | None = None
    user: int | None = None  # None = ours
    group: int | None = None
    inherited: tuple[str, ...] = ()  # names of variables besides the harmless ones
    step_back: int = 0  # how far a worker that loads may stand behind those that serve
    artifacts: Path | None = None  # copies that workers of another user must be able to read

    async def start(self, job: Job, limits: Limits, log: structlog.typing.FilteringBoundLogger) -> WorkerProcess:
        """A new worker; `end` must follow. Raises OSError."""
        await asyncio.to_thread(self._open_artifact, job.file)
        if job.cache is not None and self.user is not None and self.group is not None:
            os.chown(job.cache, self.user, self.group)
        job = job.model_copy(update={"user": self.user, "group": self.group})
        environ = environment(os.environ, job.threads, job.visible_gpus, self.inherited) | job.environment
        group = self._group_of(job, limits)
        try:
            async with self.nursery.lock:
                worker = await WorkerProcess.start(job, environ, group, log)
                self.nursery.add(worker.pid)
        except BaseException:
            if group is not None:
                await group.end()
            raise
        return worker

    async def end(self, worker: WorkerProcess) -> None:
        """Wait until a worker that was killed is gone, and what it left behind too."""
        await worker.close()
        await self.nursery.ended(worker.pid)

    def _group_of(self, job: Job, limits: Limits) -> Cgroup | None:
        if self.cgroups is None:
            return None
        try:
            return self.cgroups.make(job.id, limits)
        except OSError as error:
            log.warning("cgroup_not_made", worker=job.id, reason=str(error))
            return None

    def _open_artifact(self, file: Path) -> None:
        """Let the workers' group read the copy that `file` lies in. Blocks. Raises OSError."""
        if self.group is None or self.artifacts is None:
            return
        whole = file.absolute()
        copy = next((path for path in (whole, *whole.parents) if path.parent == self.artifacts), None)
        if copy is None:
            return
        _share(self.artifacts, self.group)
        for path in (copy, *copy.rglob("*")):
            if not path.is_symlink():
                _share(path, self.group)


def hosting_of(config: RuntimeConfig) -> Hosting:
    """As the settings say. Raises BadConfigError."""
    try:
        hide_memory()  # our environment holds the password of etcd
    except OSError as error:
        log.warning("memory_not_hidden", reason=str(error))
    user, group = _ids(config.worker_user, config.worker_group)
    artifacts = config.artifacts_dir().absolute()
    if group is not None:
        _check_way(artifacts, group, "TURNOUT_RUNTIME_CACHE_DIR")
        for path in (os.__file__, __file__):
            _check_way(Path(path).resolve(), group, "TURNOUT_RUNTIME_WORKER_USER")
    names = tuple(name.strip() for name in config.worker_environment.split(",") if name.strip())
    cgroups = Cgroups.find() if config.worker_cgroups else None
    step_back = step_of(config.load_nice, same_user=user in (None, os.geteuid()))
    if step_back < config.load_nice:
        log.info("loads_stand_back_less", nice=step_back, wanted=config.load_nice)
    return Hosting(Nursery(adopts=True), cgroups, user, group, names, step_back, artifacts)


def _ids(user: str, group: str) -> tuple[int | None, int | None]:
    if not user:
        if group:
            raise BadConfigError("TURNOUT_RUNTIME_WORKER_GROUP: needs TURNOUT_RUNTIME_WORKER_USER")
        return None, None
    if os.geteuid() != 0:
        raise BadConfigError("TURNOUT_RUNTIME_WORKER_USER: needs a runtime that runs as root")
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except KeyError:
        if not user.isdecimal():
            raise BadConfigError(f"TURNOUT_RUNTIME_WORKER_USER: there is no user {user!r}") from None
        uid, gid = int(user), int(user)
    else:
        uid, gid = entry.pw_uid, entry.pw_gid
    if group:
        try:
            gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
        except KeyError:
            raise BadConfigError(f"TURNOUT_RUNTIME_WORKER_GROUP: there is no group {group!r}") from None
    return uid, gid


def _check_way(path: Path, group: int, setting: str) -> None:
    """Raise BadConfigError unless members of `group` can come as far as `path`."""
    for above in path.parents:
        try:
            found = above.stat()
        except FileNotFoundError:
            continue  # made by us, for all to enter
        needed = stat.S_IXGRP if found.st_gid == group else stat.S_IXOTH
        if not found.st_mode & needed:
            raise BadConfigError(f"{setting}: workers of group {group} cannot enter {above} on the way to {path}")


def _share(path: Path, group: int) -> None:
    """Readable by the group, and by nobody else but its owner."""
    os.chown(path, -1, group)
    path.chmod(0o750 if path.is_dir() else 0o640)
