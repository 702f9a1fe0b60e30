"""Ask many requests at once: nothing twice, nothing beyond the budget, again after faults, and all of it on record."""

from __future__ import annotations

import threading
from dataclasses import replace
from queue import SimpleQueue
from typing import Callable, Iterator, Sequence, TypeVar

from envcoder_bench.search.providers.asking import Asker, Retry, Sleep
from envcoder_bench.search.providers.base import LENGTH, REFUSAL, Provider, Reply, Request
from envcoder_bench.search.providers.budget import Budget
from envcoder_bench.search.providers.code import MAX_CHARS, extract_code
from envcoder_bench.search.providers.transcript import Transcript

__all__ = ["Retry", "complete_all", "no_code"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def no_code(reply: Reply) -> str:
    """Why a reply holds no candidate, in one line; empty where it does."""
    if len(reply.text) > MAX_CHARS:
        return f"the reply has {len(reply.text):,} characters, and at most {MAX_CHARS:,} are read"
    if extract_code(reply.text, cut_off=reply.finish == LENGTH) is not None:
        return ""
    if reply.finish in (LENGTH, REFUSAL):
        return reply.error
    return "no Python code with a compute_* function in the reply"


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
    """Get a reply for every request, from the transcript where it is there, else from the provider.

    A reply is on disk as soon as it has arrived. Ctrl-C ends this at once; requests in flight are lost, replies not.

    Args:
        unusable: says why a reply does not do, in one line, or an empty string; it is then asked for again.
        concurrency: most requests in flight.
        on_reply: called with a request's index and reply as they come, in this thread.
        notify: called with one line when a request has to be sent again; from any thread.
        sleep: instead of waiting so many seconds, for tests.
        replies_per_request: requests that differ in ``sample`` alone are sent as one that asks for up to so many
            replies, where the provider gives several.

    Returns:
        A reply for each request, in order, none of them missing: ``finish`` and ``error`` say what went wrong.

    Raises:
        UserError: no request will be answered (wrong key, unknown model, a price that is unknown), the transcript
            cannot be written, or a replay lacks a request.
    """
    budget = Budget() if budget is None else budget
    budget.check_price(provider)
    given_up = threading.Event()
    refused: list[str] = []
    asker = Asker(
        provider, transcript, budget, unusable, retry or Retry(), notify, given_up, sleep or given_up.wait, refused
    )
    limit = provider.default_output_tokens
    asked = [r if r.max_output_tokens is not None else replace(r, max_output_tokens=limit) for r in requests]
    replies: list[Reply | None] = [None] * len(asked)

    def answer_together(group: Sequence[Request]) -> None:
        asker.answer_together(group, replies_per_request)

    try:
        for _ in _in_threads(answer_together, _same_prompts(asked), concurrency, given_up):
            pass
        for index, reply in _in_threads(asker.answer, asked, concurrency, given_up):
            replies[index] = reply
            if on_reply is not None:
                on_reply(index, reply)
    finally:
        given_up.set()
    if refused:  # by a recorded search's budget; only now, since its requests came in another order
        budget.stop(refused[0])
    return [reply for reply in replies if reply is not None]


def _same_prompts(requests: Sequence[Request]) -> list[list[Request]]:
    """Requests that differ in ``sample`` alone, two and more of them, in their order."""
    groups: dict[Request, dict[int, Request]] = {}
    for request in requests:
        groups.setdefault(replace(request, sample=0), {}).setdefault(request.sample, request)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def _in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], concurrency: int, given_up: threading.Event
) -> Iterator[tuple[int, Result]]:
    """Do the work for each item in so many threads; yields its index and result as they come, and raises its errors."""
    todo = iter(enumerate(items))
    taking = threading.Lock()
    outcomes: SimpleQueue[tuple[int, Result | _Raised]] = SimpleQueue()

    def run() -> None:
        while not given_up.is_set():
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
        # daemons: Ctrl-C does not wait for a slow server
        threading.Thread(target=run, name=f"llm-{number}", daemon=True).start()
    for _ in items:
        index, outcome = outcomes.get()
        if isinstance(outcome, _Raised):
            raise outcome.error
        yield index, outcome


class _Raised:
    """What work raised instead of a result."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
