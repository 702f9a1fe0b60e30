"""Limits on what a search may spend: a request that could exceed one is not sent."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Callable

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.providers.base import Provider, Reply, Request, most_input_tokens
from envcoder_bench.search.providers.prices import Price, price_of, prices_file, read_prices


@dataclass(frozen=True)
class Spent:
    """Tokens, input and output together, and US dollars."""

    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.tokens + other.tokens, self.cost + other.cost)

    def minus(self, other: Spent) -> Spent:
        return Spent(self.tokens - other.tokens, self.cost - other.cost)


class Budget:
    """Most tokens and most US dollars of a whole search, with what was spent before a resume.

    What a provider bills for a request whose reply never arrived is not known, and not counted.

    Attributes:
        stopped: why no more requests are sent, in one line; empty while they are. Once stopped it stays so.
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        prices: dict[str, Price] | None = None,
    ) -> None:
        if max_tokens is not None and max_tokens < 1:
            raise UserError(f"--max_tokens {max_tokens}: give at least 1 token")
        if max_cost is not None and not 0 < max_cost < float("inf"):
            raise UserError(f"--max_cost {max_cost:g}: give US dollars above 0")
        self.max_tokens = max_tokens
        self.max_cost = max_cost
        self.stopped = ""
        self._prices = read_prices() if prices is None else prices
        self._reserved = Spent()
        self._changed = threading.Condition()

    def check_price(self, provider: Provider) -> None:
        """Raise UserError where costs are limited and the model's price is unknown."""
        if self.max_cost is not None and price_of(provider.model, self._prices) is None:
            raise UserError(
                f"--max_cost {self.max_cost:g}: the price of {provider.model} is unknown; add it to {prices_file()}, "
                "or limit tokens with --max_tokens"
            )

    def priced(self, provider: Provider, reply: Reply) -> float | None:
        """What a reply cost: as recorded, or by the price of its tokens; None where that is unknown."""
        price = price_of(provider.model, self._prices)
        if reply.cost is not None or price is None:
            return reply.cost
        return price.of(reply.input_tokens, reply.output_tokens)

    def most(self, provider: Provider, request: Request, replies: int = 1) -> Spent:
        """The most that a request for so many replies can spend."""
        input_tokens = most_input_tokens(request)
        output_tokens = replies * (request.max_output_tokens or provider.default_output_tokens)
        price = price_of(provider.model, self._prices)
        return Spent(input_tokens + output_tokens, price.of(input_tokens, output_tokens) if price else 0.0)

    def reserve(self, most: Spent, spent: Callable[[], Spent], given_up: Callable[[], bool]) -> bool:
        """Set the most that a request can spend aside, so that requests in flight never exceed the budget together.

        Waits while requests in flight may turn out cheap enough for it. Every reservation must be released.

        Args:
            spent: what all replies so far have spent.
            given_up: asked now and then while waiting; when true, the wait ends.

        Returns:
            False: it could exceed the budget (``stopped`` says so), or was given up.
        """
        with self._changed:
            while not self.stopped and not given_up():
                now = spent()
                if not self._exceeded_by(now.plus(self._reserved).plus(most)):
                    self._reserved = self._reserved.plus(most)
                    return True
                if self._reserved.tokens == 0:
                    self.stopped = f"{self._exceeded_by(now.plus(most))}, so the search stops"
                    self._changed.notify_all()
                else:
                    self._changed.wait(0.2)
            return False

    def reserve_several(
        self, provider: Provider, request: Request, count: int, spent: Callable[[], Spent]
    ) -> tuple[int, Spent]:
        """As ``reserve``, for two to ``count`` replies to one request: as many as fit now, without waiting.

        Returns:
            For how many replies, and what was set aside; nothing where not even two fit.
        """
        with self._changed:
            now = spent().plus(self._reserved)
            for replies in range(count, 1, -1):
                most = self.most(provider, request, replies)
                if not self.stopped and not self._exceeded_by(now.plus(most)):
                    self._reserved = self._reserved.plus(most)
                    return replies, most
        return 0, Spent()

    def stop(self, why: str) -> None:
        """Stop, as a replayed search stopped."""
        with self._changed:
            self.stopped = self.stopped or why
            self._changed.notify_all()

    def release(self, most: Spent) -> None:
        """Give a reservation back, after what it came to is in ``spent``."""
        with self._changed:
            self._reserved = self._reserved.minus(most)
            if self._reserved.tokens == 0:
                self._reserved = Spent()  # sums of dollars leave rounding errors
            self._changed.notify_all()

    def _exceeded_by(self, total: Spent) -> str:
        if self.max_tokens is not None and total.tokens > self.max_tokens:
            return f"the next request could exceed --max_tokens {self.max_tokens}"
        if self.max_cost is not None and total.cost > self.max_cost:
            return f"the next request could exceed --max_cost {self.max_cost:g}"
        return ""
