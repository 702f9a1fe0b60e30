"""One question until there is a reply that does: the record first, then the provider, again after faults."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from typing import Callable, Sequence

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
    """How long to keep trying; the waits grow twofold, with jitter.

    Attributes:
        tries: most times that a request is sent until there is a reply.
        timeouts: most times that it may run into the time limit, which takes minutes and may be billed.
        asks: most replies to a request until one does.
        first_wait, max_wait: seconds before the second try, and most before any.
        most_patience: seconds; a server that asks to wait longer is given up.
    """

    tries: int = 7
    timeouts: int = 3
    asks: int = 3
    first_wait: float = 1.0
    max_wait: float = 60.0
    most_patience: float = 300.0

    def wait(self, failures: int, retry_after: float | None = None) -> float:
        """Seconds to wait after so many failures: at least what the server asked for."""
        backoff = min(self.max_wait, self.first_wait * 2 ** (failures - 1)) * random.uniform(0.5, 1.0)
        return max(backoff, retry_after + random.uniform(0, self.first_wait)) if retry_after is not None else backoff

    def patient(self, error: ProviderError) -> bool:
        return error.retry_after is None or error.retry_after <= self.most_patience


class GivenUp(Exception):
    """The caller no longer waits for the replies."""


@dataclass(frozen=True)
class Asker:
    """What all requests of one complete_all share.

    Attributes:
        refused: why a recorded search did not ask; filled in as its replies come.
    """

    provider: Provider
    transcript: Transcript
    budget: Budget
    unusable: Callable[[Reply], str]
    retry: Retry
    notify: Callable[[str], None] | None
    given_up: threading.Event
    sleep: Sleep
    refused: list[str]

    def answer(self, request: Request) -> Reply:
        """Ask until a reply does; tokens and cost are of all attempts."""
        answers: list[Reply] = []
        reason = ""
        for attempt in range(self.retry.asks):
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

    def answer_together(self, requests: Sequence[Request], most: int) -> None:
        """Put replies to one prompt on record by few requests, where the provider gives several replies to one.

        What cannot be had in this way is left to ``answer``. After a failure half as many replies are asked for: it
        may be the number that a server, or its limit of tokens a minute, does not take.

        Args:
            requests: the same but for ``sample``.
            most: replies that one request asks for.
        """
        provider = self.provider
        if not isinstance(provider, SeveralReplies):
            return
        keys = [self.transcript.key(provider.name, request) for request in requests]
        with self.transcript.asking(*keys):
            left = [pair for pair in zip(keys, requests) if self.transcript.find(pair[0]) is None]
            failures = 0
            while len(left) > 1 and not self.given_up.is_set():
                count = min(len(left), most, provider.most_replies)
                count, reserved = self.budget.reserve_several(provider, left[0][1], count, self._spent)
                if not count:
                    return
                fault = None
                try:
                    replies = [self._priced(reply) for reply in provider.complete_several(left[0][1], count)]
                    self.transcript.add_replies([(*pair, reply) for pair, reply in zip(left, replies)])
                    left = left[len(replies) :]
                except ProviderError as error:
                    fault, failures, most = error, failures + 1, count // 2
                finally:
                    self.budget.release(reserved)
                if fault is not None and not self._bear(fault, left[:count], failures):
                    return

    def _bear(self, error: ProviderError, asked: Sequence[tuple[Key, Request]], failures: int) -> bool:
        """Record that a request for several replies failed, and wait; False where it is not to be sent again."""
        (key, first), (_, last) = asked[0], asked[-1]
        request = replace(first, label=f"{first.label} to {last.label}" if first.label else "")
        self.transcript.add_failure(key, request, error)
        if error.kind == "timeout" or not error.again or not self.retry.patient(error):
            return False
        self._wait(request, error, failures)
        return True

    def _ask(self, request: Request) -> Reply:
        """The reply that is on record, or a new one."""
        key = self.transcript.key(self.provider.name, request)
        with self.transcript.asking(key):
            known = self.transcript.find(key)
            if known is not None:
                return known
            most = self.budget.most(self.provider, request)
            if not self.budget.reserve(most, self._spent, self.given_up.is_set):
                if self.given_up.is_set():
                    raise GivenUp
                refused = Reply("", finish=BUDGET, error=self.budget.stopped)
                self.transcript.add_replies([(key, request, refused)])  # so that a replay stops there, too
                return refused
            try:
                if request.attempt and not self.provider.recorded:
                    self._pause(self.retry.wait(request.attempt))
                reply = self._priced(self._send(request, key))
                self.transcript.add_replies([(key, request, reply)])
                if reply.finish == BUDGET:
                    self.refused.append(reply.error)
            finally:
                self.budget.release(most)
        return reply

    def _send(self, request: Request, key: Key) -> Reply:
        """Send a request until there is a reply, or no hope of one."""
        timeouts = 0
        for failures in range(1, self.retry.tries + 1):
            if self.given_up.is_set():
                raise GivenUp
            try:
                return self.provider.complete(request)
            except ProviderError as error:
                self.transcript.add_failure(key, request, error)
                patient = self.retry.patient(error)
                timeouts += error.kind == "timeout"
                hopeless = not error.again or not patient or timeouts == self.retry.timeouts
                if hopeless or failures == self.retry.tries:
                    tried = f" (tried {failures} times)" if failures > 1 else ""
                    asked = "" if patient else f"; it asks to wait {error.retry_after:.0f} s"
                    return Reply("", cost=0.0, finish=ERROR, error=f"{error}{asked}{tried}")
                self._wait(request, error, failures)
        raise AssertionError("the last try returns")

    def _priced(self, reply: Reply) -> Reply:
        return replace(reply, cost=self.budget.priced(self.provider, reply))

    def _spent(self) -> Spent:
        return self.transcript.spent

    def _wait(self, request: Request, error: ProviderError, failures: int) -> None:
        """Wait until a request is sent again, and say so."""
        seconds = self.retry.wait(failures, error.retry_after)
        if self.notify is not None:
            self.notify(f"{request.label or self.provider.name}: {error}; again in {seconds:.0f} s")
        self._pause(seconds)

    def _pause(self, seconds: float) -> None:
        self.sleep(seconds)
        if self.given_up.is_set():
            raise GivenUp
