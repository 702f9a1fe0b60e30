"""Ask many requests at once: nothing twice, nothing beyond the budget, again after faults, and all of it on record."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Callable, List, Optional, Sequence, Tuple, Union

from envcoder_bench.search.providers.base import (
    BUDGET,
    ERROR,
    LENGTH,
    REFUSAL,
    Provider,
    ProviderError,
    Reply,
    Request,
)
from envcoder_bench.search.providers.budget import Budget, Spent
from envcoder_bench.search.providers.code import MAX_CHARS, extract_code
from envcoder_bench.search.providers.transcript import Transcript


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

    def wait(self, failures: int, retry_after: Optional[float] = None) -> float:
        """Seconds to wait after so many failures: at least what the server asked for."""
        backoff = min(self.max_wait, self.first_wait * 2 ** (failures - 1)) * random.uniform(0.5, 1.0)
        return max(backoff, retry_after + random.uniform(0, self.first_wait)) if retry_after is not None else backoff


def no_code(reply: Reply) -> str:
    """Why a reply holds no candidate, in one line; empty where it does."""
    if len(reply.text) > MAX_CHARS:
        return f"the reply has {len(reply.text):,} characters, and at most {MAX_CHARS:,} are read"
    if extract_code(reply.text, cut_off=reply.finish == LENGTH) is not None:
        return ""
    if reply.finish in (LENGTH, REFUSAL):
        return reply.error
    return "no Python code with a compute_* function in the reply"


class _GivenUp(Exception):
    """The caller no longer waits for the replies."""


Sleep = Callable[[float], object]


def complete_all(
    provider: Provider,
    requests: Sequence[Request],
    transcript: Transcript,
    budget: Optional[Budget] = None,
    unusable: Callable[[Reply], str] = no_code,
    concurrency: int = 8,
    retry: Optional[Retry] = None,
    on_reply: Optional[Callable[[int, Reply], None]] = None,
    notify: Optional[Callable[[str], None]] = None,
    sleep: Optional[Sleep] = None,
) -> List[Reply]:
    """Get a reply for every request, from the transcript where it is there, else from the provider.

    A reply is on disk as soon as it has arrived. Ctrl-C ends this at once; requests in flight are lost, replies not.

    Args:
        unusable: says why a reply does not do, in one line, or an empty string; it is then asked for again.
        concurrency: most requests in flight.
        on_reply: called with a request's index and reply as they come, in this thread.
        notify: called with one line when a request has to be sent again; from any thread.
        sleep: instead of waiting so many seconds, for tests.

    Returns:
        A reply for each request, in order, none of them missing: ``finish`` and ``error`` say what went wrong.

    Raises:
        UserError: no request will be answered (wrong key, unknown model, a price that is unknown), the transcript
            cannot be written, or a replay lacks a request.
    """
    budget = Budget() if budget is None else budget
    budget.check_price(provider)
    given_up = threading.Event()
    refused: List[str] = []
    call = _Call(
        provider, transcript, budget, unusable, retry or Retry(), notify, given_up, sleep or given_up.wait, refused
    )
    todo = iter(enumerate(requests))
    taking = threading.Lock()
    outcomes: SimpleQueue[Tuple[int, Union[Reply, BaseException]]] = SimpleQueue()

    def work() -> None:
        while not given_up.is_set():
            with taking:
                index, request = next(todo, (-1, None))
            if request is None:
                return
            try:
                outcomes.put((index, call.answer(request)))
            except BaseException as error:
                outcomes.put((index, error))
                return

    replies: List[Optional[Reply]] = [None] * len(requests)
    try:
        for number in range(min(concurrency, len(requests))):
            # daemons: Ctrl-C does not wait for a slow server
            threading.Thread(target=work, name=f"llm-{number}", daemon=True).start()
        for _ in requests:
            index, outcome = outcomes.get()
            if isinstance(outcome, BaseException):
                raise outcome
            replies[index] = outcome
            if on_reply is not None:
                on_reply(index, outcome)
    finally:
        given_up.set()
    if refused:  # by a recorded search's budget; only now, since its requests came in another order
        budget.stop(refused[0])
    return [reply for reply in replies if reply is not None]


@dataclass(frozen=True)
class _Call:
    """What all requests of one complete_all share."""

    provider: Provider
    transcript: Transcript
    budget: Budget
    unusable: Callable[[Reply], str]
    retry: Retry
    notify: Optional[Callable[[str], None]]
    given_up: threading.Event
    sleep: Sleep
    refused: List[str]  # why a recorded search did not ask

    def answer(self, request: Request) -> Reply:
        """Ask until a reply does; tokens and cost are of all attempts."""
        if request.max_output_tokens is None:
            request = replace(request, max_output_tokens=self.provider.default_output_tokens)
        answers: List[Reply] = []
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
                    raise _GivenUp
                refused = Reply("", finish=BUDGET, error=self.budget.stopped)
                self.transcript.add_reply(key, request, refused)  # so that a replay stops there, too
                return refused
            try:
                if request.attempt and not self.provider.recorded:
                    self._pause(self.retry.wait(request.attempt))
                reply = self._send(request, key)
                reply = replace(reply, cost=self.budget.priced(self.provider, reply))
                self.transcript.add_reply(key, request, reply)
                if reply.finish == BUDGET:
                    self.refused.append(reply.error)
            finally:
                self.budget.release(most)
        return reply

    def _spent(self) -> Spent:
        return self.transcript.spent

    def _send(self, request: Request, key: Tuple[str, str]) -> Reply:
        """Send a request until there is a reply, or no hope of one."""
        timeouts = 0
        for failures in range(1, self.retry.tries + 1):
            if self.given_up.is_set():
                raise _GivenUp
            try:
                return self.provider.complete(request)
            except ProviderError as error:
                self.transcript.add_failure(key, request, error)
                patient = error.retry_after is None or error.retry_after <= self.retry.most_patience
                timeouts += error.kind == "timeout"
                hopeless = not error.again or not patient or timeouts == self.retry.timeouts
                if hopeless or failures == self.retry.tries:
                    tried = f" (tried {failures} times)" if failures > 1 else ""
                    asked = "" if patient else f"; it asks to wait {error.retry_after:.0f} s"
                    return Reply("", cost=0.0, finish=ERROR, error=f"{error}{asked}{tried}")
                seconds = self.retry.wait(failures, error.retry_after)
                if self.notify is not None:
                    self.notify(f"{request.label or self.provider.name}: {error}; again in {seconds:.0f} s")
                self._pause(seconds)
        raise AssertionError("the last try returns")

    def _pause(self, seconds: float) -> None:
        self.sleep(seconds)
        if self.given_up.is_set():
            raise _GivenUp
