"""Streamed answers on links: their order and their credit."""

import itertools

import pytest

from services.chassis.streamed import WINDOW_BYTES, InOrder, Window, cost_of
from services.core.errors import INTERNAL
from turnout.v1 import link_pb2 as pb
from turnout.v1.tensor_pb2 import Tensor


def answer(seq: int) -> pb.Reply:
    return pb.Reply(id=1, seq=seq)


def end(seq: int, code: int = 0) -> pb.Reply:
    return pb.Reply(id=1, seq=seq, final=True, code=code)


@pytest.mark.parametrize("replies", list(itertools.permutations([answer(0), answer(1), answer(2), end(3)])))
def test_whatever_comes_first_leaves_in_order(replies: tuple[pb.Reply, ...]) -> None:
    order = InOrder()

    taken = [each for reply in replies for each in order.take(reply)]

    assert [each.seq for each in taken] == [0, 1, 2, 3]
    assert [each.final for each in taken] == [False, False, False, True]
    assert order.count == 3


def test_an_end_that_knows_of_no_answers_is_one_at_once_and_an_answer_comes_once() -> None:
    order = InOrder()
    order.take(answer(0))

    assert order.take(answer(0)) == []
    assert order.take(answer(2)) == []
    assert [each.code for each in order.take(end(0, INTERNAL))] == [INTERNAL]


def test_small_answers_are_bounded_by_number_and_large_ones_by_size() -> None:
    small = pb.Reply(outputs=[Tensor(data=b"x")])
    large = pb.Reply(outputs=[Tensor(data=bytes(9000)), Tensor(data=bytes(1000))])

    assert (cost_of(small), cost_of(pb.Reply()), cost_of(large)) == (4096, 4096, 10_000)


def test_what_was_read_is_given_back_in_quarters_and_none_is_lost() -> None:
    window = Window()

    given = [window.read(4096) for _ in range(64)]

    assert sum(given) == 64 * 4096 == WINDOW_BYTES
    assert [each for each in given if each] == [WINDOW_BYTES // 4] * 4
    assert window.read(10 * WINDOW_BYTES) == 10 * WINDOW_BYTES
