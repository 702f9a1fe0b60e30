"""Send many requests concurrently, with transcript, budget and retries."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import TypeVar

from envcoder_bench.search.providers.asking import Asker, Retry, Sleep
from envcoder_bench.search.providers.base import LENGTH, Provider, Reply, Request
from envcoder_bench.search.providers.budget import Budget
from envcoder_bench.search.providers.code import MAX_CHARS, extract_code
from envcoder_bench.search.providers.transcript import Transcript

__all__ = ["Retry", "complete_all", "no_answer", "no_code"]

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
    """Return why the same request should be sent again, in one line; empty for a complete reply, also without code."""
    reason = no_code(reply)
    return "" if reason == NO_FUNCTION else reason


def complete_all(
    provider: Provider,
    requests: Sequence[Request],
    transcript: Transcript,
    budget: Budget | None = None,
    unusable: Callable[[Reply], str] = no_code,
    concurrency: int = 8,
    retry: Retry | None = None,
    on_reply: Callable[[int, Reply], None] | None = None,
    notify: Callable[[str], None] | None = None,
    sleep: Sleep | None = None,
    replies_per_request: int = 16,
) -> list[Reply]:
    """Return a reply for every request, from the transcript or from the provider.

    Replies are on disk as soon as they have arrived. Ctrl-C ends this at once; only requests in flight are lost.

    Args:
        provider: the model.
        requests: the requests.
        transcript: records all replies and failures.
        budget: the search's budget; None for no limits.
        unusable: returns why a reply is not usable, in one line, or an empty string; unusable ones are requested again.
        concurrency: largest number of requests in flight.
        retry: limits on retries.
        on_reply: called with a request's index and reply as they arrive, in this thread.
        notify: called with one line when a request must be sent again, from any thread.
        sleep: replaces waiting, for tests.
        replies_per_request: requests that differ only in ``sample`` are sent as one request for up to this many
            replies, if the provider supports it.

    Returns:
        A reply for each request, in order; ``finish`` and ``error`` tell failures.

    Raises:
        UserError: if no request can succeed (wrong key, unknown model, unknown price), the transcript cannot be
            written, or a replay lacks a request.
    """
    budget = Budget() if budget is None else budget
    budget.check_price(provider)
    cancelled = threading.Event()
    refused: list[str] = []
    asker = Asker(
        provider, transcript, budget, unusable, retry or Retry(), notify, cancelled, sleep or cancelled.wait, refused
    )
    limit = provider.default_output_tokens
    complete = [r if r.max_output_tokens is not None else replace(r, max_output_tokens=limit) for r in requests]
    replies: list[Reply | None] = [None] * len(complete)

    def answer_together(group: Sequence[Request]) -> None:
        asker.answer_together(group, replies_per_request)

    try:
        for _ in _in_threads(answer_together, _same_prompts(complete), concurrency, cancelled):
            pass
        for index, reply in _in_threads(asker.answer, complete, concurrency, cancelled):
            replies[index] = reply
            if on_reply is not None:
                on_reply(index, reply)
    finally:
        cancelled.set()
    if refused:  # by a recorded search's budget; only now, because its requests came in another order
        budget.stop(refused[0])
    return [reply for reply in replies if reply is not None]


def _same_prompts(requests: Sequence[Request]) -> list[list[Request]]:
    """Return groups of at least two requests that differ only in ``sample``."""
    groups: dict[Request, dict[int, Request]] = {}
    for request in requests:
        groups.setdefault(replace(request, sample=0), {}).setdefault(request.sample, request)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


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


class _Raised:
    """An exception in place of a result."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
