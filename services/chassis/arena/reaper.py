"""Arenas whose owner is gone: nobody holds their lock, so their names can go."""

import contextlib
import fcntl
import os
from pathlib import Path

import structlog

from services.chassis.arena.layout import FOLDER, PREFIX

log = structlog.get_logger()


def reap(folder: Path = FOLDER) -> int:
    """Unlink every arena without an owner; how many there were."""
    return sum([unlink_if_orphaned(path) for path in folder.glob(f"{PREFIX}*")])


def unlink_if_orphaned(path: Path) -> bool:
    """Unlink one arena unless its owner lives; whether it was unlinked. What is not ours to open is left alone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(FileNotFoundError):  # its owner took the name away this very moment
            path.unlink()
            log.info("orphaned_arena_unlinked", name=path.name)
            return True
    except OSError:
        pass  # its owner lives, or it belongs to others
    finally:
        os.close(fd)
    return False
