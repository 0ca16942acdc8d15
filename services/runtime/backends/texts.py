"""Texts of a batch: from bytes, and which of them run together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.core.errors import INVALID_ARGUMENT
from services.runtime.backends import ModelError

_LAUNCH_TOKENS = 48  # a launch costs about as much as this many tokens in a larger one (MiniLM on a core: 49)


def as_texts(name: str, array: NDArray) -> list[str]:
    """The elements of a BYTES input. Raises ModelError INVALID_ARGUMENT for what is not UTF-8."""
    elements: list[bytes] = array.ravel().tolist()
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at offset {error.start} of {len(error.object)}"
        message = f"input {name!r} is text, and an element of it is not UTF-8: {found}"
        raise ModelError(INVALID_ARGUMENT, message) from None


def text_array(name: str, array: NDArray) -> NDArray:
    """A BYTES input as an array of str. Raises as `as_texts`."""
    text = np.empty(array.size, dtype=object)
    text[:] = as_texts(name, array)
    return text.reshape(array.shape)


def together(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Positions of texts that are launched together, the longest first: each is filled up to its launch's longest.

    A launch ends where filling up would cost more than another launch, or at `most_tokens`.
    """
    launches: list[list[int]] = []
    longest = filled = 0
    for place in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        filled += longest - lengths[place]
        if not launches or filled > _LAUNCH_TOKENS or (len(launches[-1]) + 1) * longest > most_tokens:
            launches.append([])
            longest, filled = lengths[place], 0
        launches[-1].append(place)
    return launches
