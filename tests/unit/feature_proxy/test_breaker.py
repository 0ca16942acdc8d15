from services.feature_proxy.breaker import Breaker


def test_a_store_is_left_alone_after_failures_in_a_row_then_tried_once_a_while() -> None:
    breaker = Breaker(failures=2, open_s=1)
    began = [breaker.failed(0.0), breaker.failed(0.1)]

    assert began == [True, False]
    assert [breaker.allows(now) for now in (0.5, 1.09, 1.1, 1.2, 2.1)] == [False, False, True, False, True]
    assert breaker.retry_after_s(2.6) == 0.5


def test_one_success_closes_it_and_is_said_to_end_the_failures() -> None:
    breaker = Breaker(failures=2, open_s=1)
    breaker.failed(0)
    breaker.failed(0)

    assert (breaker.succeeded(), breaker.succeeded()) == (True, False)
    assert breaker.allows(0)


def test_failures_that_are_not_in_a_row_leave_it_closed() -> None:
    breaker = Breaker(failures=2, open_s=1)
    for _ in range(5):
        breaker.failed(0)
        breaker.succeeded()

    assert breaker.allows(0)
    assert breaker.retry_after_s(10) == 1
