"""What a process asks of the kernel."""

import ctypes
import os
import resource
import signal
import socket
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 24, 36, 38
_CAPABILITY_VERSION_3, _MOST_CAPABILITIES = 0x20080522, 64
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
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        signal.raise_signal(signum)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends; each must be waited for. Raises OSError."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Keep other processes of this user from reading this one's memory and environment. Raises OSError."""
    _prctl(_PR_SET_DUMPABLE, 0)


def no_new_privileges() -> None:
    """Have no program that this process starts gain anything, set-user-ID or not. Raises OSError."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Give up what root may do beyond its own files and processes; a no-op for others. Raises OSError."""
    for capability in range(_MOST_CAPABILITIES):
        try:
            _prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            break  # past the last one that the kernel knows, or not ours to drop
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)  # 0 = this thread: call it before there are others
    nothing = (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0:
        raise _last_error()


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


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
