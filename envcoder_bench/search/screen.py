"""Messages of a search for the terminal: its settings, rounds, costs and results."""

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from envcoder_bench.core.plain_text import one_line
from envcoder_bench.core.shell import display_path
from envcoder_bench.core.words import counted, cut, duration, join_words, number, without_folders
from envcoder_bench.report.certainty import LONGER, nothing_learnt
from envcoder_bench.report.table import render_table
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.result import RunResult
from envcoder_bench.search import report
from envcoder_bench.search.archive import NO_CODE, Archive, best_of, noted
from envcoder_bench.search.folder import Round
from envcoder_bench.search.llm import Usage
from envcoder_bench.search.merit import expected_text
from envcoder_bench.search.prompt.feedback import explain, idea
from envcoder_bench.search.providers.budget import Spent
from envcoder_bench.tasks.base import HUMAN

WIDTH = 110
ERROR = 400  # characters of an error


class View:
    """The display of a search, here without output; commands derive from it.

    Attributes:
        reporter, stop: reporter and stop request for its runs.
    """

    def __init__(self, reporter: Reporter | None = None, stop: StopRequest | None = None) -> None:
        self.reporter, self.stop = reporter or Reporter(), stop or StopRequest()

    def say(self, text: str) -> None:
        """Show a text, which may contain text of a candidate: see ``core.plain_text``."""

    def show(self, result: RunResult) -> None:
        """Show the ranking of the final evaluation."""


def opening(facts: Mapping[str, str]) -> str:
    """Return the settings of the search, one per line."""
    width = max(map(len, facts))
    return "\n".join(
        textwrap.fill(text, WIDTH, initial_indent=f"{name:>{width}}  ", subsequent_indent=" " * (width + 2))
        for name, text in facts.items()
    )


def candidates(round: Round) -> str:
    """Describe each candidate of a round: ready, repaired, failed or without code, with the reason."""
    lines: list[str] = []
    for proposal in round.ready:
        status = "repaired" if proposal.name in round.repaired else "ready"
        text, prefix = idea(proposal.source) or proposal.origin, f"{proposal.name}, "  # evolve's begin with the name
        text = text[len(prefix) :] if text.startswith(prefix) else text
        lines.append(_row(proposal.name, status, text))
        if proposal.name in round.repaired:
            lines.append(_row("", "", f"was: {_short(str(round.repaired[proposal.name]))}"))
        if proposal.left_out:
            lines.append(_row("", "", f"without {join_words(proposal.left_out)}: not in --shaper_types"))
    for proposal, status, fault in round.failed:
        text, _, code = explain(fault, proposal.source).partition("\n")
        note = without_folders(proposal.note)
        lines.append(_row(proposal.name, "no code" if status == NO_CODE else "failed", _short(noted(text, note))))
        lines += [_row("", "", f"> {code.strip()}")] if code else []
    # how many of each
    no_code = sum(status == NO_CODE for _, status, _ in round.failed)
    counts = {
        f"ready{f' ({len(round.repaired)} repaired)' if round.repaired else ''}": len(round.ready),
        "failed": len(round.failed) - no_code,
        "without code": no_code,
    }
    lines.append(", ".join(f"{count} {label}" for label, count in counts.items() if count or label == "ready"))
    return "\n".join(lines)


def _row(name: str, status: str, text: str) -> str:
    head = f"  {name:<7}  {status:<8}  "
    return "\n".join(
        textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False)
    )


def _short(error: str) -> str:
    return cut(one_line(error), ERROR)


def ranking(ranked: Sequence[Ranked]) -> str:
    """Return a round's table without notes, which are shown with the final evaluation."""
    return render_table(ranked, "", WIDTH, notes=False).rstrip()


def spending(usage: Usage, spent: Spent) -> str:
    """Return tokens and cost of a round and of the search so far; empty without requests."""
    if not usage.requests:
        return ""
    price = "price unknown" if usage.cost is None else f"${usage.cost:.2f}"
    total = f"so far {counted(spent.tokens, 'token')}" + ("" if usage.cost is None else f", ${spent.cost:.2f}")
    tokens = f"{counted(usage.input_tokens, 'token')} in and {usage.output_tokens:,} out"
    replies = counted(usage.requests, "reply", "replies")
    return f"{replies}, {tokens}, {price}; {total}"


def best_so_far(archive: Archive) -> str:
    """Say which is the best so far, what to expect of it on new seeds, and how it compares with the baseline."""
    best = archive.best()
    if best is None:
        return "no candidate has a fitness yet"
    seeds = f", mean of {len(best.by_seed)} seeds" if len(best.by_seed) > 1 else ""
    lines = [f"best so far: {best.name}, fitness {number(best.fitness or 0.0)}{seeds}"]
    merits = archive.merits()
    if best.name in merits.names:
        lines.append(expected_text(merits, best.name))
    # a higher mean that is more likely luck
    highest = best_of([a for a in archive.attempts if not a.stopped_at])
    if highest is not None and highest is not best and highest.name in merits.names:
        seeds = counted(len(highest.by_seed), "seed")
        expected = number(merits.expected(highest.name)[0])
        lines.append(
            f"{highest.name} has {number(highest.fitness or 0.0)} on {seeds}, but {expected} is expected of it"
        )
    return "\n".join([*lines, *filter(None, [nothing_learnt(report.ranking(archive), LONGER)])])


def _signed(value: float) -> str:
    return number(value, 3, "+")


def times(writing: float, training: float, left: float) -> str:
    """Describe the duration of a round, and what is left of the search; arguments in seconds."""
    parts = f"writing and checks {duration(writing)}, training {duration(training)}"
    return f"this round took {duration(writing + training)}: {parts}; about {duration(left)} left at this pace"


def verdict(ranked: Sequence[Ranked], name: str) -> str:
    """Compare the best with the human baseline in the final evaluation, in one line."""
    rows = {row.candidate: row for row in ranked}
    best, human = rows.get(name), rows.get(HUMAN)
    if best is None or best.rank is None:
        reason = "it is not in it"
        if best is not None:
            reason = str(best.fault.without_folders()) if best.fault else "it failed"
        return f"{name} has no fitness in the final evaluation: {reason}"
    if human is None or human.rank is None or math.isnan(best.vs_human):
        return f"{name}: fitness {number(best.fitness)}; the human baseline has none to compare it with"
    low, high = best.vs_human_ci_low, best.vs_human_ci_high
    seeds = counted(len(best.seeds), "new seed")
    lost = [f"{row.lost_seeds} of {row.candidate}" for row in (best, human) if row.lost_seeds]
    failed = f"; seeds that failed: {join_words(lost)}" if lost else ""
    if math.isnan(low):
        return f"{name} against human: {_signed(best.vs_human)} on {seeds}, too few for a confidence interval{failed}"
    # an interval gives a verdict, in the words of results/pairs.py
    result = "is better than human:" if low > 0 else "is worse than human:" if high < 0 else ""
    difference = f"{_signed(best.vs_human)} [{_signed(low)}, {_signed(high)}] over {seeds}{failed}"
    return f"{name} {result or 'against human: cannot tell; difference'} {difference}"


def paths(files: Iterable[Path]) -> str:
    """Return the paths of the files, one per line."""
    return "\n".join(display_path(path) for path in files)
