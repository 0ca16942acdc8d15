"""Texts of a batch: what is text, and who runs with whom."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.errors import INVALID_ARGUMENT
from services.runtime.backends import ModelError
from services.runtime.backends.texts import as_texts, together


def test_texts_are_utf8_whatever_else_they_hold() -> None:
    array = np.array([b"", "Köln".encode(), b"a\0b\0"], dtype=object)

    assert as_texts("text", array) == ["", "Köln", "a\0b\0"]


def test_what_is_no_text_is_the_callers_fault_and_says_where() -> None:
    with pytest.raises(ModelError, match=r"input 'text' is text, .* byte 0xff at offset 2 of 4") as caught:
        as_texts("text", np.array([b"fine", b"ab\xffc"], dtype=object))

    assert caught.value.code == INVALID_ARGUMENT


def test_long_texts_do_not_fill_short_ones_up() -> None:
    assert together([5, 250, 6, 240, 5], 16_384) == [[1, 3], [2, 0, 4]]


def test_a_few_tokens_are_cheaper_than_a_launch() -> None:
    assert together([3, 9, 5, 12], 16_384) == [[3, 1, 2, 0]]


@given(st.lists(st.integers(1, 512), max_size=70), st.integers(512, 4096))
def test_every_text_is_launched_once_within_bounds(lengths: list[int], most: int) -> None:
    launches = together(lengths, most)

    assert sorted(place for launch in launches for place in launch) == list(range(len(lengths)))
    assert all(len(launch) * max(lengths[place] for place in launch) <= most for launch in launches)
    assert all(sum(max(lengths[p] for p in ps) - lengths[place] for place in ps) <= 48 for ps in launches for _ in [0])
