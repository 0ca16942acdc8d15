"""What happens often is let through once a second."""

from services.chassis.throttle import Throttle

S = 1_000_000_000


def test_one_a_second_is_let_through_with_the_number_of_those_held_back() -> None:
    throttle = Throttle()

    assert [throttle.count(5 * S + n * S // 4) for n in range(9)] == [1, 0, 0, 0, 4, 0, 0, 0, 4]
