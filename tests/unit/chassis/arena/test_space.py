import pytest

from services.chassis.arena.space import Space


def test_the_smallest_extent_that_is_large_enough_is_taken() -> None:
    space = Space()
    space.grow(100)
    large, _, small, _ = (space.take(size) for size in (40, 1, 20, 39))
    assert large is not None
    assert small is not None
    space.give_back(large)
    space.give_back(small)

    assert space.take(20) == small


def test_what_is_given_back_joins_both_neighbours() -> None:
    space = Space()
    space.grow(30)
    for start in (0, 10, 20):
        assert space.take(10) == start
    for start in (0, 20, 10):
        space.give_back(start)

    assert space.free_extents == [(0, 30)]
    assert space.take(30) == 0


def test_there_is_no_room_beyond_the_end_until_it_grows() -> None:
    space = Space()
    space.grow(10)

    assert space.take(11) is None
    space.grow(1)
    assert space.take(11) == 0
    assert space.take(1) is None


def test_what_was_not_taken_cannot_be_given_back() -> None:
    space = Space()
    space.grow(10)
    space.take(4)

    with pytest.raises(KeyError):
        space.give_back(4)
