"""What a process asks of the kernel."""

import ctypes
import os
import resource
import signal
import socket
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ENOUGH_FILES = 1 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT_BYTES = 32 << 20  # glibc takes no more
_KEPT_BYTES = 256 << 20


def die_with_parent(parent: int, signum: int = signal.SIGTERM) -> None:
    """Have the kernel send `signum` to this process when its parent, process `parent`, is gone.

    A parent that died before this call counts too. The kernel watches the *thread* that started this process, so
    spawn such processes from a thread that lives as long as they may. Raises OSError where the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        signal.raise_signal(signum)


def host_id() -> str:
    """Equal for two processes exactly when they see the same host (container): one boot and one host name."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = "unknown"
    return f"{boot}/{socket.gethostname()}"


def keep_freed_memory() -> None:
    """Have malloc keep what is freed for the next large buffer, not give it back and fault it in again.

    Without this every buffer over 128 KiB costs a page fault a page. Does nothing where libc is not glibc.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def raise_file_limit() -> int:
    """Raise the soft limit of open files as far as allowed and useful; gives the limit that holds now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
