"""Exact sleeps: the kernel may round a process's wake-ups by 50 µs unless told otherwise."""

import ctypes

_PR_SET_TIMERSLACK = 29


def sleep_exactly() -> None:
    """Have the kernel wake this process's threads when they asked for, from now on."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
