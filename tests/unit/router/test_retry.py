from services.router.retry import RetryBudget


def spent(budget: RetryBudget) -> int:
    count = 0
    while budget.spend():
        count += 1
    return count


def test_a_quiet_service_may_retry_a_few_times() -> None:
    assert spent(RetryBudget(0.1)) == 10


def test_retries_are_a_share_of_the_answers() -> None:
    budget = RetryBudget(0.1)
    spent(budget)
    budget.answered += 105

    assert spent(budget) == 10


def test_no_more_than_so_many_are_saved() -> None:
    budget = RetryBudget(0.5, most=20)
    budget.answered += 1000

    assert spent(budget) == 20


def test_a_budget_of_nothing_allows_nothing() -> None:
    budget = RetryBudget(0)
    budget.answered += 1000
    budget.refund()

    assert spent(budget) == 0


def test_a_retry_that_was_not_made_is_given_back() -> None:
    budget = RetryBudget(0.1)
    assert spent(budget) == 10
    budget.refund()

    assert spent(budget) == 1
