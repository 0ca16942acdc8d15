"""Extents of a space never overlap, what is free is free, and all of it given back is one whole again."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from services.chassis.arena.space import Space

SIZES = st.integers(1, 40)


class SpaceMachine(RuleBasedStateMachine):
    """A space beside a plain list of who holds which byte."""

    extents = Bundle("extents")

    def __init__(self) -> None:
        super().__init__()
        self.space = Space()
        self.held: dict[int, int] = {}
        self.nobodys: dict[int, int] = {}

    @rule(size=SIZES)
    def grow(self, size: int) -> None:
        self.space.grow(size)

    @rule(size=SIZES, skip=SIZES)
    def grow_apart(self, size: int, skip: int) -> None:
        self.nobodys[self.space.size] = skip
        self.space.grow(size + skip, skip=skip)

    @rule(target=extents, size=SIZES)
    def take(self, size: int) -> int:
        longest = max((free for _, free in self.space.free_extents), default=0)
        start = self.space.take(size)

        assert (start is not None) == (longest >= size)
        if start is None:
            return -1
        self.held[start] = size
        return start

    @rule(start=consumes(extents))
    def give_back(self, start: int) -> None:
        if start >= 0:
            self.space.give_back(start)
            del self.held[start]

    @invariant()
    def held_and_free_extents_cover_the_space_once(self) -> None:
        extents = sorted([*self.held.items(), *self.nobodys.items(), *self.space.free_extents])
        at = 0
        for start, size in extents:
            assert start == at
            at += size

        assert at == self.space.size
        assert self.space.taken == len(self.held)

    @invariant()
    def neighbours_that_are_free_are_one(self) -> None:
        ends = {start + size for start, size in self.space.free_extents}

        assert not ends & {start for start, _ in self.space.free_extents}

    def teardown(self) -> None:
        for start in list(self.held):
            self.space.give_back(start)

        whole, at = [], 0
        for start, size in [*sorted(self.nobodys.items()), (self.space.size, 0)]:
            whole += [(at, start - at)] if start > at else []
            at = start + size
        assert self.space.free_extents == whole


TestSpace = SpaceMachine.TestCase


@given(st.lists(SIZES, min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_equal_sizes_are_reused_in_place(sizes: list[int], random: object) -> None:
    space = Space()
    space.grow(sum(sizes) * 2)
    starts = [space.take(size) for size in sizes]
    again = []
    for start, size in zip(starts, sizes, strict=True):
        assert start is not None
        space.give_back(start)
        again.append(space.take(size))

    assert None not in again
    assert space.size == sum(sizes) * 2
