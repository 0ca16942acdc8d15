"""Shared vocabulary: frozen values and pure functions. No I/O, no await, no clock."""
