"""Get a usable reply to one request, from the transcript or the provider, with retries."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from envcoder_bench.search.providers.base import (
    BUDGET,
    ERROR,
    Provider,
    ProviderError,
    Reply,
    Request,
    SeveralReplies,
)
from envcoder_bench.search.providers.budget import Budget, Spent
from envcoder_bench.search.providers.transcript import Key, Transcript

Sleep = Callable[[float], object]


@dataclass(frozen=True)
class Retry:
    """Limits on retries; waits double each time, with jitter.

    Attributes:
        tries: how often a request is sent at most until there is a reply.
        timeouts: how often it may time out, which takes minutes and may be billed.
        attempts: number of replies that are requested at most until one is usable.
        first_wait, max_wait: seconds before the second try, and the maximum before any.
        max_retry_after: seconds; a request is not repeated if the server asks for a longer wait.
    """

    tries: int = 7
    timeouts: int = 3
    attempts: int = 3
    first_wait: float = 1.0
    max_wait: float = 60.0
    max_retry_after: float = 300.0

    def wait(self, failures: int, retry_after: float | None = None) -> float:
        """Return the seconds to wait after a number of failures; at least what the server asked for."""
        backoff = min(self.max_wait, self.first_wait * 2 ** (failures - 1)) * random.uniform(0.5, 1.0)
        return max(backoff, retry_after + random.uniform(0, self.first_wait)) if retry_after is not None else backoff

    def accepts_wait(self, error: ProviderError) -> bool:
        """Return whether the wait that the server asks for is short enough."""
        return error.retry_after is None or error.retry_after <= self.max_retry_after


class Cancelled(Exception):
    """The caller no longer waits for the replies."""


@dataclass(frozen=True)
class Asker:
    """What all requests of one ``complete_all`` share.

    Attributes:
        provider, transcript, budget, unusable, retry, notify, sleep: arguments of ``complete_all``.
        cancelled: set if the caller no longer waits.
        refused: reasons why a replayed search did not send a request; filled in as replies arrive.
    """

    provider: Provider
    transcript: Transcript
    budget: Budget
    unusable: Callable[[Reply], str]
    retry: Retry
    notify: Callable[[str], None] | None
    cancelled: threading.Event
    sleep: Sleep
    refused: list[str]

    def answer(self, request: Request) -> Reply:
        """Request replies until one is usable; return it with tokens and cost of all attempts."""
        answers: list[Reply] = []
        reason = ""
        for attempt in range(self.retry.attempts):
            reply = self._ask(replace(request, attempt=attempt))
            if reply.finish in (ERROR, BUDGET):
                if not answers:
                    return reply
                break
            answers.append(reply)
            reason = self.unusable(reply)
            if not reason:
                break
        times = f" (asked {len(answers)} times)" if reason and len(answers) > 1 else ""
        costs = [reply.cost for reply in answers if reply.cost is not None]
        return replace(
            answers[-1],
            input_tokens=sum(reply.input_tokens for reply in answers),
            output_tokens=sum(reply.output_tokens for reply in answers),
            cost=sum(costs) if len(costs) == len(answers) else None,
            error=reason + times,
        )

    def answer_together(self, requests: Sequence[Request], limit: int) -> None:
        """Get replies to one prompt with few requests, if the provider supports several replies, and record them.

        ``answer`` requests the remaining ones. After a failure half as many replies are requested, because their
        number may exceed a limit of the server.

        Args:
            requests: requests that differ only in ``sample``.
            limit: largest number of replies of one request.
        """
        provider = self.provider
        if not isinstance(provider, SeveralReplies):
            return
        keys = [self.transcript.key(provider.name, request) for request in requests]
        with self.transcript.asking(*keys):
            left = [pair for pair in zip(keys, requests) if self.transcript.find(pair[0]) is None]
            failures = 0
            while len(left) > 1 and not self.cancelled.is_set():
                count = min(len(left), limit, provider.max_replies)
                count, reserved = self.budget.reserve_several(provider, left[0][1], count, self._spent)
                if not count:
                    return
                fault = None
                try:
                    replies = [self._with_cost(reply) for reply in provider.complete_several(left[0][1], count)]
                    self.transcript.add_replies([(*pair, reply) for pair, reply in zip(left, replies)])
                    left = left[len(replies) :]
                except ProviderError as error:
                    fault, failures, limit = error, failures + 1, count // 2
                finally:
                    self.budget.release(reserved)
                if fault is not None and not self._record_and_wait(fault, left[:count], failures):
                    return

    def _record_and_wait(self, error: ProviderError, sent: Sequence[tuple[Key, Request]], failures: int) -> bool:
        """Record that a request for several replies failed, and wait; return False if it should not be repeated."""
        (key, first), (_, last) = sent[0], sent[-1]
        request = replace(first, label=f"{first.label} to {last.label}" if first.label else "")
        self.transcript.add_failure(key, request, error)
        if error.kind == "timeout" or not error.again or not self.retry.accepts_wait(error):
            return False
        self._wait(request, error, failures)
        return True

    def _ask(self, request: Request) -> Reply:
        """Return the recorded reply, or a new one."""
        key = self.transcript.key(self.provider.name, request)
        with self.transcript.asking(key):
            known = self.transcript.find(key)
            if known is not None:
                return known
            reserved = self.budget.max_spending(self.provider, request)
            if not self.budget.reserve(reserved, self._spent, self.cancelled.is_set):
                if self.cancelled.is_set():
                    raise Cancelled
                refused = Reply("", finish=BUDGET, error=self.budget.stopped)
                self.transcript.add_replies([(key, request, refused)])  # so that a replay stops here, too
                return refused
            try:
                if request.attempt and not self.provider.recorded:
                    self._pause(self.retry.wait(request.attempt))
                reply = self._with_cost(self._send(request, key))
                self.transcript.add_replies([(key, request, reply)])
                if reply.finish == BUDGET:
                    self.refused.append(reply.error)
            finally:
                self.budget.release(reserved)
        return reply

    def _send(self, request: Request, key: Key) -> Reply:
        """Send a request until there is a reply, or retries are exhausted or useless."""
        timeouts = 0
        for failures in range(1, self.retry.tries + 1):
            if self.cancelled.is_set():
                raise Cancelled
            try:
                return self.provider.complete(request)
            except ProviderError as error:
                self.transcript.add_failure(key, request, error)
                short_wait = self.retry.accepts_wait(error)
                timeouts += error.kind == "timeout"
                final = not error.again or not short_wait or timeouts == self.retry.timeouts
                if final or failures == self.retry.tries:
                    tried = f" (tried {failures} times)" if failures > 1 else ""
                    wait = "" if short_wait else f"; it asks to wait {error.retry_after:.0f} s"
                    return Reply("", cost=0.0, finish=ERROR, error=f"{error}{wait}{tried}")
                self._wait(request, error, failures)
        raise AssertionError("the last try returns")

    def _with_cost(self, reply: Reply) -> Reply:
        return replace(reply, cost=self.budget.cost_of(self.provider, reply))

    def _spent(self) -> Spent:
        return self.transcript.spent

    def _wait(self, request: Request, error: ProviderError, failures: int) -> None:
        """Notify the caller and wait until a request may be repeated."""
        seconds = self.retry.wait(failures, error.retry_after)
        if self.notify is not None:
            self.notify(f"{request.label or self.provider.name}: {error}; again in {seconds:.0f} s")
        self._pause(seconds)

    def _pause(self, seconds: float) -> None:
        self.sleep(seconds)
        if self.cancelled.is_set():
            raise Cancelled
