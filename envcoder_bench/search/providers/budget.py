"""Limits on the tokens and cost of a search: requests that could exceed them are not sent. Prices: cfg/prices.yaml."""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envcoder_bench.core.errors import UserError, message_line
from envcoder_bench.core.folders import project_folder
from envcoder_bench.core.yaml_files import parse_plain
from envcoder_bench.search.providers.base import Provider, Reply, Request, max_input_tokens

# gpt-4o-2024-11-20, claude-haiku-4-5-20251001 and gpt-4-turbo-preview have the price of the name without this suffix
_VERSION = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest|preview)$")


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
    """Limits of tokens and US dollars for a whole search, also over resumes.

    The cost of requests whose reply never arrived is unknown and not counted.

    Attributes:
        max_tokens, max_cost: the limits; None for no limit.
        stopped: why no more requests are sent, in one line; empty while they are. Never reset.
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        prices: dict[str, Price] | None = None,
    ) -> None:
        self.max_tokens = max_tokens
        self.max_cost = max_cost
        self.stopped = ""
        self._prices = read_prices() if prices is None else prices
        self._reserved = Spent()
        self._changed = threading.Condition()

    def check_price(self, provider: Provider) -> None:
        """Raise UserError if costs are limited but the model's price is unknown."""
        if self.max_cost is not None and self.price(provider) is None:
            raise UserError(
                f"--max_cost {self.max_cost:g}: the price of {provider.model} is unknown; add it to {prices_file()}, "
                "or limit tokens with --max_tokens"
            )

    def price(self, provider: Provider) -> Price | None:
        """Return the price of the model; None if it is unknown."""
        return price_of(provider.model, self._prices)

    def check_amount(self, provider: Provider, request: Request) -> None:
        """Raise UserError if a limit does not allow a single request such as this one."""
        least = self.max_spending(provider, request)
        reply = request.max_output_tokens or provider.default_output_tokens
        of = f"a prompt of at most {least.tokens - reply:,} tokens and a reply of {reply:,} (--max_output_tokens)"
        if self.max_cost is not None and least.cost > self.max_cost:
            dollars = math.ceil(least.cost * 1000) / 1000
            raise UserError(f"--max_cost {self.max_cost:g}: one request may cost ${dollars:g}, with {of}: give more")
        if self.max_tokens is not None and least.tokens > self.max_tokens:
            raise UserError(f"--max_tokens {self.max_tokens}: one request may need {least.tokens:,}, {of}: give more")

    def cost_of(self, provider: Provider, reply: Reply) -> float | None:
        """Return the recorded cost of a reply, or that of its tokens, in US dollars; None if the price is unknown."""
        price = self.price(provider)
        if reply.cost is not None or price is None:
            return reply.cost
        return price.of(reply.input_tokens, reply.output_tokens)

    def max_spending(self, provider: Provider, request: Request) -> Spent:
        """Return the largest amount that a request can spend."""
        input_tokens = max_input_tokens(request)
        output_tokens = request.max_output_tokens or provider.default_output_tokens
        price = self.price(provider)
        return Spent(input_tokens + output_tokens, price.of(input_tokens, output_tokens) if price else 0.0)

    def reserve(self, amount: Spent, spent: Callable[[], Spent], cancelled: Callable[[], bool]) -> bool:
        """Reserve the largest amount that a request can spend, so that concurrent requests stay within the budget.

        Waits as long as requests in flight may leave enough. Every reservation must be released.

        Args:
            amount: see ``max_spending``.
            spent: returns what all replies so far have spent.
            cancelled: polled while waiting; ends the wait if true.

        Returns:
            Whether the request may be sent; False if it could exceed the budget (see ``stopped``) or was cancelled.
        """
        with self._changed:
            while not self.stopped and not cancelled():
                now = spent()
                if not self._exceeded_by(now.plus(self._reserved).plus(amount)):
                    self._reserved = self._reserved.plus(amount)
                    return True
                if self._reserved.tokens == 0:
                    self.stopped = f"{self._exceeded_by(now.plus(amount))}, so the search stops"
                    self._changed.notify_all()
                else:
                    self._changed.wait(0.2)
            return False

    def stop(self, reason: str) -> None:
        """Send no more requests, as in the replayed search."""
        with self._changed:
            self.stopped = self.stopped or reason
            self._changed.notify_all()

    def release(self, amount: Spent) -> None:
        """Release a reservation; ``spent`` must already include the actual amount."""
        with self._changed:
            self._reserved = self._reserved.minus(amount)
            if self._reserved.tokens == 0:
                self._reserved = Spent()  # removes rounding errors
            self._changed.notify_all()

    def _exceeded_by(self, total: Spent) -> str:
        if self.max_tokens is not None and total.tokens > self.max_tokens:
            return f"the next request could exceed --max_tokens {self.max_tokens}"
        if self.max_cost is not None and total.cost > self.max_cost:
            return f"the next request could exceed --max_cost {self.max_cost:g}"
        return ""


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    def of(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of tokens in US dollars."""
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


def prices_file() -> Path:
    return project_folder("cfg") / "prices.yaml"


def read_prices(path: Path | None = None) -> dict[str, Price]:
    """Read the prices of all models.

    Raises:
        UserError: if the file cannot be read or has an invalid entry.
    """
    path = path or prices_file()
    try:
        content = _parsed(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {message_line(error)}") from error
    models = content.get("models") if isinstance(content, dict) else None
    if not isinstance(models, dict):
        raise UserError(f"{path}: the key 'models' is missing; see cfg/prices.yaml as it was shipped")
    return {str(name): _price(path, name, entry) for name, entry in models.items()}


_parsed = functools.lru_cache(maxsize=2)(parse_plain)  # each budget of a process reads the same text


def _price(path: Path, name: str, entry: object) -> Price:
    if isinstance(entry, dict) and set(entry) == {"input", "output"}:
        values = list(entry.values())
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) and 0 <= v < float("inf") for v in values):
            return Price(float(entry["input"]), float(entry["output"]))
    raise UserError(f"{path}: models.{name} is {entry!r}; write {{input: DOLLARS, output: DOLLARS}} per million tokens")


def price_of(model: str, prices: dict[str, Price]) -> Price | None:
    """Return the price of a model, or of its name without a version suffix; None if unknown."""
    return prices.get(model) or prices.get(_VERSION.sub("", model))
