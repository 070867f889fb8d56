"""The budget of an expansion: what is taken, and when it ends."""

import pytest

from webhook.kube.kinds.model import DEPTH, Budget, BudgetSpentError


def nested(levels):
    value = []
    for number in range(levels - 1):
        value = [value] if number % 2 else {"a": value}
    return value


def test_the_last_step_and_byte_may_be_taken_and_no_further_one():
    budget = Budget(steps=3, max_bytes=2)
    budget.step(2)
    budget.step()
    budget.write(2)
    with pytest.raises(BudgetSpentError):
        budget.step()
    with pytest.raises(BudgetSpentError):
        budget.write(1)


def test_each_value_that_is_read_is_a_step():
    budget = Budget(steps=10)
    budget.read({"a": [1, 2, {"b": "text"}], "c": None})
    assert budget.steps_left == 10 - 6


def test_a_document_of_too_many_values_or_levels_is_not_read():
    with pytest.raises(BudgetSpentError):
        Budget(steps=9).read([0] * 10)
    Budget().read(nested(DEPTH))
    with pytest.raises(BudgetSpentError):
        Budget().read(nested(DEPTH + 1))
    with pytest.raises(BudgetSpentError):
        Budget().read(nested(100_000))
