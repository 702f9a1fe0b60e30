"""Candidates from a language model: one prompt, several samples, and a second try for those that fail their check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

from tqdm import tqdm

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.prompt import Prompts
from envcoder_bench.search.providers.base import BUDGET, ERROR, LENGTH, Message, Provider, Reply, Request
from envcoder_bench.search.providers.budget import Budget, Spent
from envcoder_bench.search.providers.code import extract_code
from envcoder_bench.search.providers.complete import complete_all
from envcoder_bench.search.providers.transcript import Transcript
from envcoder_bench.search.records import Archive, Proposal, proposal_name

REPAIRED = ", repaired"
EACH_REPAIR = 100_000  # what the sample numbers of one repair are apart from those of the next


@dataclass(frozen=True)
class Sampling:
    """How a model is asked; see cfg/auto_shape.yaml."""

    temperature: float | None = None
    max_output_tokens: int | None = None
    concurrency: int = 8
    replies_per_request: int = 16


@dataclass
class Usage:
    """What was asked for a round; ``cost`` in US dollars, None where the model's price is unknown.

    ``requests`` counts those that one reply each was wanted for, also where several were sent as one.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0

    def add(self, reply: Reply) -> None:
        """Count a reply with all its attempts."""
        self.requests += 1
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens
        self.cost = None if self.cost is None or reply.cost is None else self.cost + reply.cost


class LLMProposer:
    """Asks a model for candidates; every request and reply goes through the transcript.

    Args:
        sampling: how it is asked.
        starts: sources of candidates, which are the first proposals of the first round, by name.
        notify: called with one line when a request has to be sent again.

    Attributes:
        usage: of the round that was proposed last, its repairs included; also what came from the transcript.
    """

    def __init__(
        self,
        provider: Provider,
        transcript: Transcript,
        budget: Budget,
        prompts: Prompts,
        sampling: Sampling = Sampling(),
        starts: Mapping[str, str] | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self._provider, self._transcript, self._budget = provider, transcript, budget
        self._prompts, self._sampling, self._starts, self._notify = prompts, sampling, dict(starts or {}), notify
        self.usage = Usage()
        self._repairs = 0  # of this round so far

    def propose(self, archive: Archive, round: int, count: int) -> list[Proposal]:
        """Sample candidates from one prompt; those that the budget does not allow are not among them.

        Raises:
            UserError: the model answers nothing at all.
        """
        self.usage, self._repairs = Usage(), 0
        names = [proposal_name(round, k) for k in range(count)]
        starts = list(self._starts.items())[:count] if round == 1 else []
        given = [Proposal(own, source, (), f"start: {name}") for own, (name, source) in zip(names, starts)]
        text = self._prompts.question(archive, round)
        best = archive.best()
        parents = (best.name,) if best is not None else ()
        wanted = list(enumerate(names))[len(given) :]
        replies = self._ask([self._request(name, text, sample) for sample, name in wanted])
        if replies and all(reply.finish == ERROR for reply in replies):
            raise UserError(f"no request was answered: {replies[0].error}")  # asked anew when the search is resumed
        sampled = [
            self._proposal(name, parents, f"{self._provider.model}, sample {sample}", reply)
            for (sample, name), reply in zip(wanted, replies)
            if reply.finish != BUDGET
        ]
        return given + sampled

    def repair(self, archive: Archive, failures: Sequence[tuple[Proposal, str]]) -> list[Proposal | None]:
        """Show each candidate that failed its error, and ask for the file anew."""
        texts = [self._prompts.repair(error, proposal.source) for proposal, error in failures]
        self._repairs += 1
        labels = [f"{p.name} repair {self._repairs}" for p, _ in failures]
        # twins that fail alike, and one that is asked about again, are to get replies of their own
        samples = [int(p.name.split("_")[1]) + (self._repairs - 1) * EACH_REPAIR for p, _ in failures]
        asked = [place for place, text in enumerate(texts) if text]
        replies = self._ask([self._request(labels[place], texts[place], samples[place]) for place in asked])
        repaired: list[Proposal | None] = [None] * len(failures)
        for place, reply in zip(asked, replies):
            failed = failures[place][0]
            mended = self._proposal(failed.name, failed.parents, failed.origin + REPAIRED, reply)
            repaired[place] = mended if mended.source else None
        return repaired

    @property
    def spent(self) -> Spent:
        """Tokens and dollars of the whole search so far."""
        return self._transcript.spent

    @property
    def stopped(self) -> str:
        """Why the budget allows no more requests; empty while it does."""
        return self._budget.stopped

    def _request(self, label: str, text: str, sample: int) -> Request:
        messages = (Message("user", text),)
        temperature, most = self._sampling.temperature, self._sampling.max_output_tokens
        return Request(self._prompts.system, messages, temperature, most, sample=sample, label=label)

    def _ask(self, requests: list[Request]) -> list[Reply]:
        """Get all replies, with a bar where there is a terminal."""
        with tqdm(total=len(requests), desc="replies", leave=False, disable=None) as bar:

            def arrived(index: int, reply: Reply) -> None:
                bar.update()

            replies = complete_all(
                self._provider,
                requests,
                self._transcript,
                self._budget,
                concurrency=self._sampling.concurrency,
                on_reply=arrived,
                notify=self._notify,
                replies_per_request=self._sampling.replies_per_request,
            )
        for reply in replies:
            if reply.finish != BUDGET:
                self.usage.add(reply)
        return replies

    def _proposal(self, name: str, parents: tuple[str, ...], how: str, reply: Reply) -> Proposal:
        code = extract_code(reply.text, cut_off=reply.finish == LENGTH) or ""
        source = code.encode("utf-8", "replace").decode("utf-8")  # JSON may bring halves of characters
        why = "" if source else reply.error or "there is no code in the reply"
        return Proposal(name, source, parents, how, why)
