"""What a worker gives up before it touches its model: its user, its privileges, files without end."""

import os
import pwd
import resource

from services.chassis.process import adopt_orphans, drop_capabilities, no_new_privileges
from services.runtime.job import Job

SPARE_FILES = 64  # beyond max_open_files: the supervisor sees that there are too many before the kernel refuses more
_NOBODY_ELSE = 0o077


def confine(job: Job) -> None:
    """Confine this process, which must have one thread. Raises OSError where the kernel refuses."""
    os.umask(_NOBODY_ELSE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = job.max_open_files + SPARE_FILES
    files = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if job.cpus:
        os.sched_setaffinity(0, job.cpus)
    if job.user is not None:
        _become(job.user, job.group)
    elif os.geteuid() == 0:
        drop_capabilities()
    no_new_privileges()
    adopt_orphans()  # so that what the model leaves behind stays below it: counted, and ended with it


def _become(user: int, group: int | None) -> None:
    os.setgroups([])
    os.setgid(user if group is None else group)
    os.setuid(user)
    try:
        entry = pwd.getpwuid(user)
    except KeyError:
        os.environ["HOME"] = "/"
    else:
        os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)
