"""A proposer that samples candidates from a language model, and has it repair those that fail their check."""

import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tqdm import tqdm

from envcoder_bench.core import run_log
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.plain_text import one_line, own_codes
from envcoder_bench.core.words import join_words
from envcoder_bench.search.archive import NO_REPLY, Archive, Proposal, proposal_name
from envcoder_bench.search.prompt.feedback import parents
from envcoder_bench.search.prompt.prompts import Prompts
from envcoder_bench.search.providers.base import BUDGET, ERROR, LENGTH, STOP, Message, Provider, Reply, Request
from envcoder_bench.search.providers.budget import Budget, Spent
from envcoder_bench.search.providers.code import ends_in_block, extract_code, other_functions
from envcoder_bench.search.providers.complete import complete_all, no_answer
from envcoder_bench.search.providers.transcript import Transcript
from envcoder_bench.search.settings import SearchSettings
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.faults import one_line as fault_line
from envcoder_bench.shaping.source import reduced, without_script

REPAIRED = ", repaired"
UNFINISHED = "the reply ended inside its code block: give the whole file, and close the block"
EXCERPT = 300  # characters of a reply without a candidate
REPAIR_STRIDE = 100_000  # difference between the sample numbers of consecutive repairs


@dataclass
class Usage:
    """The usage of a round.

    Attributes:
        requests: number of requested replies.
        input_tokens, output_tokens: numbers of tokens.
        cost: US dollars; None if the model's price is unknown.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0

    def add(self, reply: Reply) -> None:
        """Add a reply with all its attempts."""
        self.requests += 1
        self.input_tokens += reply.input_tokens
        self.output_tokens += reply.output_tokens
        self.cost = None if self.cost is None or reply.cost is None else self.cost + reply.cost


class LLMProposer:
    """Requests candidates from a model; the transcript records every request and reply.

    Args:
        starts: sources by name, which are the first proposals of the first round.
        types: the functions of the search; others are removed from candidates. None for all.

    Attributes:
        usage: usage of the last round including its repairs and replies from the transcript.
    """

    def __init__(
        self,
        provider: Provider,
        transcript: Transcript,
        budget: Budget,
        prompts: Prompts,
        settings: SearchSettings,
        starts: Mapping[str, str] | None = None,
        types: Sequence[str] | None = None,
    ) -> None:
        self._types = types
        self._provider, self._transcript, self._budget = provider, transcript, budget
        self._prompts, self._settings, self._starts = prompts, settings, dict(starts or {})
        self.usage = Usage()
        self._repairs = 0  # this round's, so far
        self._sources: dict[str, str] = {}  # this round's
        self._unfinished: set[str] = set()  # candidates whose reply ended inside its code block

    def propose(self, archive: Archive, round: int, count: int) -> list[Proposal]:
        """Sample candidates, each from its own starting point; fewer if the budget does not allow all.

        Raises:
            UserError: if no request is answered.
        """
        self.usage, self._repairs = Usage(), 0
        names = [proposal_name(round, k) for k in range(count)]
        starts = list(self._starts.items())[:count] if round == 1 else []
        started = [self._start(new, name, source) for new, (name, source) in zip(names, starts)]
        wanted = list(enumerate(names))[len(started) :]
        texts = [self._prompts.question(archive, round, sample) for sample, _ in wanted]
        replies = self._ask([self._request(name, text, sample) for text, (sample, name) in zip(texts, wanted)])
        attempts = archive.by_name
        if replies and all(reply.finish == ERROR for reply in replies):
            raise UserError(f"no request was answered: {replies[0].error}")  # requested again on resume
        sampled = [
            self._with_parents(self._proposal(name, (), f"{self._provider.model}, sample {sample}", reply), attempts)
            for (sample, name), reply in zip(wanted, replies)
            if reply.finish != BUDGET
        ]
        self._sources = {p.name: p.source for p in started + sampled if p.source}
        return started + sampled

    def repair(self, archive: Archive, failures: Sequence[tuple[Proposal, Fault]]) -> list[Proposal | None]:
        """Send each failed candidate with its fault to the model and request a corrected file."""
        texts = [self._repair(archive, proposal, fault) for proposal, fault in failures]
        self._repairs += 1
        labels = [f"{p.name} repair {self._repairs}" for p, _ in failures]
        # equal prompts of several candidates or repairs must get different replies
        samples = [int(p.name.split("_")[1]) + (self._repairs - 1) * REPAIR_STRIDE for p, _ in failures]
        sent = [index for index, text in enumerate(texts) if text]
        replies = self._ask([self._request(labels[index], texts[index], samples[index]) for index in sent])
        repaired: list[Proposal | None] = [None] * len(failures)
        for index, reply in zip(sent, replies):
            failed = failures[index][0]
            proposal = self._proposal(failed.name, failed.parents, failed.origin + REPAIRED, reply)
            repaired[index] = proposal if failed.parents else self._with_parents(proposal, archive.by_name)
        self._sources.update({p.name: p.source for p in repaired if p is not None and p.source})
        return repaired

    def _repair(self, archive: Archive, proposal: Proposal, fault: Fault) -> str:
        """Return the prompt for a failed candidate; empty if it would be too long, or is not the model's."""
        if proposal.term:
            return ""
        if not proposal.source:
            round = int(proposal.name[1 : proposal.name.index("_")])
            sample = int(proposal.name.split("_")[1])
            return self._prompts.missing(archive, round, str(fault), proposal.reply, sample)
        if fault.kind == "duplicate":
            others = {name: source for name, source in self._sources.items() if name != proposal.name}
            return self._prompts.duplicate(archive, others, fault, proposal.source)
        if proposal.name in self._unfinished:
            fault = replace(fault, remedy=UNFINISHED)
        return self._prompts.repair(fault, proposal.source)

    @property
    def spent(self) -> Spent:
        """Tokens and dollars of the whole search so far."""
        return self._transcript.spent

    @property
    def stopped(self) -> str:
        """The reason why the budget allows no more requests; empty if it does."""
        return self._budget.stopped

    def _request(self, label: str, text: str, sample: int) -> Request:
        messages = (Message("user", text),)
        temperature, limit = self._settings.temperature, self._settings.max_output_tokens
        return Request(self._prompts.system, messages, temperature, limit, sample=sample, label=label)

    def _ask(self, requests: list[Request]) -> list[Reply]:
        """Return all replies; show a progress bar on a terminal."""
        stream = own_codes(sys.stderr)
        with tqdm(total=len(requests), desc="replies", leave=False, disable=None, file=stream) as bar:
            replies = complete_all(
                self._provider,
                requests,
                self._transcript,
                self._budget,
                concurrency=self._settings.concurrency,
                on_reply=lambda *_: bar.update(),
                unusable=no_answer,  # other replies are repaired, because the same prompt would give the same
            )
        for reply in replies:
            if reply.finish != BUDGET:
                self.usage.add(reply)
        return replies

    def _start(self, name: str, file: str, source: str) -> Proposal:
        text, left_out = reduced(source, self._types)
        return Proposal(name, text or source, (), f"start: {file}", left_out=left_out if text else ())

    def _proposal(self, name: str, parents: tuple[str, ...], origin: str, reply: Reply) -> Proposal:
        try:
            source, left_out = self._source(reply)
        except Exception as error:  # a reply that this package does not expect: it would come again with --resume
            run_log.note(f"the reply for {name} cannot be read\n{traceback.format_exc()}")
            begin = one_line(reply.text, EXCERPT) or "(nothing)"
            fault = Fault(f"cannot be read: {fault_line(error)}", kind="no code")
            return Proposal(name, "", parents, origin, fault, reply=begin)
        if source:
            (self._unfinished.add if ends_in_block(reply.text) else self._unfinished.discard)(name)
            return Proposal(name, source, parents, origin, left_out=left_out)
        error, note, begin = _without_code(reply, left_out, self._types or ())
        return Proposal(name, "", parents, origin, Fault(error, kind="no code"), left_out, note, begin)

    @staticmethod
    def _with_parents(proposal: Proposal, known: Collection[str]) -> Proposal:
        """Return the proposal with the parents that its docstring names."""
        return replace(proposal, parents=tuple(name for name in parents(proposal.source) if name in known))

    def _source(self, reply: Reply) -> tuple[str, tuple[str, ...]]:
        """Return the candidate in a reply, empty if there is none, and the functions that were left out."""
        return written_source(reply.text, self._types, reply.finish == LENGTH)


def written_source(text: str, types: Sequence[str] | None, cut_off: bool = False) -> tuple[str, tuple[str, ...]]:
    """Return the candidate in the text of a reply, empty if there is none, and the functions that were left out."""
    code = extract_code(text, cut_off=cut_off) or ""
    source = code.encode("utf-8", "replace").decode("utf-8")  # JSON may contain lone surrogates
    source = without_script(source)  # without effect in the jail, but best.py would have to compile as TorchScript
    # evaluations of best.py must run what was trained, and prompts must not show what was not
    return reduced(source, types)


def _without_code(reply: Reply, left_out: Sequence[str], types: Sequence[str]) -> tuple[str, str, str]:
    """Return why a reply gave no candidate, the note for the user, and the beginning of a complete reply."""
    begin = one_line(reply.text, EXCERPT)
    if reply.finish == LENGTH:
        where = " inside its code block" if ends_in_block(reply.text) else ""
        return (
            f"no whole file: the reply was cut off{where}; think less, and write less",
            reply.error,
            begin or "(nothing)",
        )
    if reply.finish != STOP or (reply.error and not reply.text):
        return NO_REPLY, reply.error, ""
    if reply.error:  # it is too long
        return reply.error, "", ""
    note = f"it begins: {begin}" if begin else "it is empty"
    only = f", only {join_words(left_out)}" if left_out else ""
    wanted = join_words(types) if left_out else "compute_* function"
    others = "" if left_out else other_functions(reply.text)
    return f"no {wanted} in the reply{only}{f'; {others}' if others else ''}", note, begin or "(nothing)"
