"""What a budget lets through: reservations of requests in flight count, and what is released is free again."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from envcoder_bench.search.providers.base import Message, Request
from envcoder_bench.search.providers.budget import Budget, Price, Spent

MODEL: Any = SimpleNamespace(name="openai:m", model="m", default_output_tokens=50)
PRICES = {"m": Price(1e6, 2e6)}  # a dollar for a token of input, two for one of output
REQUEST = Request("s", (Message("user", "Make it run"),), max_output_tokens=50)


def reserve(budget: Budget, amount: Spent, spent: Spent | None = None, waits: int = 0) -> bool:
    """Ask for an amount; give up after so many waits."""
    polls = iter([False] * (waits + 1))
    return budget.reserve(amount, lambda: spent or Spent(), lambda: next(polls, True))


@pytest.mark.parametrize(
    ("limits", "amount"), [({"max_tokens": 100}, Spent(60)), ({"max_cost": 1.0}, Spent(1, 0.6))], ids=["tokens", "cost"]
)
def test_reservations_of_requests_in_flight_count(limits: dict[str, Any], amount: Spent) -> None:
    budget = Budget(prices=PRICES, **limits)
    assert reserve(budget, amount)
    assert not reserve(budget, amount) and not budget.stopped  # the request in flight may spend less
    budget.release(amount)
    assert reserve(budget, amount) and not budget.stopped
    budget.release(amount)
    assert not reserve(budget, amount, spent=amount) and "the next request could exceed" in budget.stopped
    assert not reserve(budget, Spent(1))  # never again


def test_a_request_waits_for_the_reservations_before_it() -> None:
    budget, done = Budget(max_tokens=100, prices=PRICES), []
    assert reserve(budget, Spent(60))
    waiting = threading.Thread(target=lambda: done.append(budget.reserve(Spent(60), lambda: Spent(20), lambda: False)))
    waiting.start()
    waiting.join(0.05)
    assert not done
    budget.release(Spent(60))  # which spent 20
    waiting.join(10)
    assert done == [True]


def test_largest_amount_of_a_request_has_its_reply_and_its_price() -> None:
    budget = Budget(prices=PRICES)
    amount, longer = (budget.max_spending(MODEL, replace(REQUEST, max_output_tokens=k)) for k in (50, 150))
    assert longer.tokens - amount.tokens == 100 and longer.cost - amount.cost == 100 * 2.0
    assert amount.cost == (amount.tokens - 50) + 50 * 2.0
    assert Budget(prices={}).max_spending(MODEL, REQUEST) == Spent(amount.tokens)
