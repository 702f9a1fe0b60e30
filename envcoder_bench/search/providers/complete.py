"""Send many requests concurrently, with transcript and budget."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TypeVar

from envcoder_bench.search.providers.base import BUDGET, ERROR, LENGTH, Provider, ProviderError, Reply, Request
from envcoder_bench.search.providers.budget import Budget, Spent
from envcoder_bench.search.providers.code import MAX_CHARS, extract_code
from envcoder_bench.search.providers.transcript import Transcript

ATTEMPTS = 3  # replies that are requested at most until one is usable
NO_FUNCTION = "no Python code with a compute_* function in the reply"

Item = TypeVar("Item")
Result = TypeVar("Result")


def no_code(reply: Reply) -> str:
    """Return why a reply has no candidate, in one line; empty if it has one."""
    if len(reply.text) > MAX_CHARS:
        return f"the reply has {len(reply.text):,} characters, more than {MAX_CHARS:,}"
    if extract_code(reply.text, cut_off=reply.finish == LENGTH) is not None:
        return ""
    return reply.error or NO_FUNCTION


def no_answer(reply: Reply) -> str:
    """Return why the same request should be sent again, in one line.

    Empty for a complete reply, also without code, and for one that was cut off, as the next would be.
    """
    reason = no_code(reply)
    return "" if reason == NO_FUNCTION or reply.finish == LENGTH else reason


def complete_all(
    provider: Provider,
    requests: Sequence[Request],
    transcript: Transcript,
    budget: Budget | None = None,
    unusable: Callable[[Reply], str] = no_code,
    concurrency: int = 8,
    on_reply: Callable[[int, Reply], object] | None = None,
) -> list[Reply]:
    """Return a reply for every request, from the transcript or from the provider.

    Replies are on disk as soon as they have arrived. Ctrl-C ends this at once; only requests in flight are lost.

    Args:
        budget: the search's budget; None for no limits.
        unusable: returns why a reply is not usable, in one line, or an empty string; unusable ones are requested again.
        concurrency: largest number of requests in flight.
        on_reply: called with a request's index and reply as they arrive, in this thread.

    Returns:
        A reply for each request, in order; ``finish`` and ``error`` tell failures.

    Raises:
        UserError: if no request can succeed (wrong key, unknown model, unknown price), the transcript cannot be
            written, or a replay lacks a request.
    """
    budget = Budget() if budget is None else budget
    budget.check_price(provider)
    asker = _Asker(provider, transcript, budget, unusable)
    limit = provider.default_output_tokens
    complete = [r if r.max_output_tokens is not None else replace(r, max_output_tokens=limit) for r in requests]
    replies: list[Reply | None] = [None] * len(complete)
    try:
        for index, reply in _in_threads(asker.answer, complete, concurrency, asker.cancelled):
            replies[index] = reply
            if on_reply is not None:
                on_reply(index, reply)
    finally:
        asker.cancelled.set()
    if asker.refused:  # said at the end, because the requests of the recorded search came in another order
        budget.stop(asker.refused[0])
    return [reply for reply in replies if reply is not None]


class _Cancelled(Exception):
    """The caller no longer waits for the replies."""


@dataclass(frozen=True)
class _Asker:
    """What all requests of one ``complete_all`` share.

    Attributes:
        provider, transcript, budget, unusable: arguments of ``complete_all``.
        cancelled: set if the caller no longer waits.
        refused: reasons why a replayed search did not send a request; filled in as replies arrive.
    """

    provider: Provider
    transcript: Transcript
    budget: Budget
    unusable: Callable[[Reply], str]
    cancelled: threading.Event = field(default_factory=threading.Event)
    refused: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Reply:
        """Request replies until one is usable; return it with tokens and cost of all attempts."""
        answers: list[Reply] = []
        reason = ""
        for attempt in range(ATTEMPTS):
            reply = self._ask(replace(request, attempt=attempt))
            if reply.finish in (ERROR, BUDGET):
                if not answers:
                    return reply
                break
            answers.append(reply)
            reason = self.unusable(reply)
            if not reason:
                break
        # the caller pays for all attempts
        times = f" (asked {len(answers)} times)" if reason and len(answers) > 1 else ""
        costs = [reply.cost for reply in answers if reply.cost is not None]
        return replace(
            answers[-1],
            input_tokens=sum(reply.input_tokens for reply in answers),
            output_tokens=sum(reply.output_tokens for reply in answers),
            cost=sum(costs) if len(costs) == len(answers) else None,
            error=reason + times if reason else answers[-1].error,
        )

    def _ask(self, request: Request) -> Reply:
        """Return the recorded reply, or a new one."""
        key = self.transcript.key(self.provider.name, request)
        recorded = self.transcript.find(key)
        if recorded is not None:
            return recorded
        reserved = self.budget.max_spending(self.provider, request)
        if not self.budget.reserve(reserved, self._spent, self.cancelled.is_set):
            if self.cancelled.is_set():
                raise _Cancelled
            refused = Reply("", finish=BUDGET, error=self.budget.stopped)
            self.transcript.add(key, request, refused)  # so that a replay stops here, too
            return refused
        try:
            reply = self._with_cost(self._send(request))
            self.transcript.add(key, request, reply)
            if reply.finish == BUDGET:
                self.refused.append(reply.error)
        finally:
            self.budget.release(reserved)
        return reply

    def _send(self, request: Request) -> Reply:
        fault = ""
        for _ in range(ATTEMPTS):
            if self.cancelled.is_set():
                raise _Cancelled
            try:
                return self.provider.complete(request)
            except ProviderError as error:
                fault = str(error)
                if not error.malformed:
                    break
        return Reply("", cost=0.0, finish=ERROR, error=fault)

    def _spent(self) -> Spent:
        return self.transcript.spent

    def _with_cost(self, reply: Reply) -> Reply:
        return replace(reply, cost=self.budget.cost_of(self.provider, reply))


def _in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], concurrency: int, cancelled: threading.Event
) -> Iterator[tuple[int, Result]]:
    """Do the work for each item in threads; yield indices and results as they arrive, and raise errors."""
    todo = iter(enumerate(items))
    taking = threading.Lock()
    outcomes: SimpleQueue[tuple[int, Result | _Raised]] = SimpleQueue()

    def run() -> None:
        while not cancelled.is_set():
            with taking:
                pair = next(todo, None)
            if pair is None:
                return
            try:
                outcomes.put((pair[0], work(pair[1])))
            except BaseException as error:
                outcomes.put((pair[0], _Raised(error)))
                return

    for number in range(min(concurrency, len(items))):
        # daemon threads, so that Ctrl-C does not wait for a slow server
        threading.Thread(target=run, name=f"llm-{number}", daemon=True).start()
    for _ in items:
        index, outcome = outcomes.get()
        if isinstance(outcome, _Raised):
            raise outcome.error
        yield index, outcome


@dataclass(frozen=True)
class _Raised:
    """An exception in place of a result."""

    error: BaseException
