"""Feedback on the rounds so far for the model: the best candidates, their training, failures, and the history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envcoder_bench.report.words import counted, cut
from envcoder_bench.search.attempt_words import (
    LINE_WIDTH,
    described,
    failure,
    history_line,
    measured,
    rounded,
    summary,
    training_course,
)
from envcoder_bench.search.records import FAILED, OK, Archive, Attempt
from envcoder_bench.tasks.base import UNTRAINED

SECTIONS = (
    "The baselines", "The best so far", "The best of the last round", "Others, the best first",
    "Failed in the last round", "History",
)  # fmt: skip
BASELINES, BEST, LAST, OTHERS, FAILURES, HISTORY = range(len(SECTIONS))
MIN_LINES = 6  # of a source that is cut
FIRST_OTHERS = 3  # sources of other candidates that take precedence over the history


@dataclass(frozen=True)
class Item:
    """A part of the feedback.

    Attributes:
        section: an index of SECTIONS.
        position: order within the section.
        text: the text, which is included as a whole or left out.
        cut: whether the text may be shortened to its first lines.
    """

    section: int
    position: int
    text: str
    cut: bool = False


def feedback(archive: Archive, max_chars: int) -> str:
    """Describe all rounds so far in at most ``max_chars`` characters; the least useful items are left out."""
    chosen: list[tuple[int, int, str]] = []  # section, position, text
    begun: set[int] = set()
    left = max_chars + 2  # the last line has no line break, and the first title no empty line
    for item in _items(archive):
        title = 0 if item.section in begun else len(_title(item.section)) + 2  # an empty line before it
        text = item.text if len(item.text) + 1 + title <= left else ""
        if item.cut and not text:
            text = _first_lines(item.text, left - title - 1)
        if text:
            begun.add(item.section)
            chosen.append((item.section, item.position, text))
            left -= len(text) + 1 + title
    lines: list[str] = []
    last = -1
    for section, _, text in sorted(chosen):
        lines += [text] if section == last else ["", _title(section), text]
        last = section
    return "\n".join(lines[1:])


def _title(section: int) -> str:
    return f"## {SECTIONS[section]}"


def _items(archive: Archive) -> list[Item]:
    """Return all items, the most useful first."""
    ranked, rounds = archive.ranked(), {attempt.round for attempt in archive.attempts}
    left_out = left_out_text(archive)
    last = archive.of_round(max(rounds)) if rounds else []
    included = ranked[:1]
    items = [Item(BASELINES, 0, baselines_text(archive))] if archive.baselines else []
    items += [Item(HISTORY, -1, left_out)] if left_out else []
    items += _full(BEST, ranked[0], archive) if ranked else []
    of_last = archive.ranked(last)
    if of_last and of_last[0] is not ranked[0]:
        included.append(of_last[0])
        items += _full(LAST, of_last[0], archive)
    failed = [attempt for attempt in last if attempt.status != OK]
    items += [Item(FAILURES, position, failure(attempt)) for position, attempt in enumerate(failed)]

    others, ranks = _others(ranked, of_last, included), {a.name: k for k, a in enumerate(ranked)}
    stopped = next((a for a in failed if a.status == FAILED), None)
    sources = [Item(OTHERS, 2 * ranks[a.name], f"{summary(a, archive)}\n{_block(a)}") for a in others]
    if stopped is not None:
        sources.insert(FIRST_OTHERS - 1, Item(FAILURES, len(failed), f"The file of {stopped.name}:\n{_block(stopped)}"))
    items += sources[:FIRST_OTHERS]
    order = {attempt.name: position for position, attempt in enumerate(archive.attempts)}
    for number in sorted(rounds, reverse=True):
        attempts = archive.of_round(number)
        measured = archive.ranked(attempts)
        unmeasured = [a for a in attempts if a not in measured]
        items += [Item(HISTORY, order[a.name], history_line(a, archive)) for a in [*unmeasured, *reversed(measured)]]
    items += sources[FIRST_OTHERS:]
    return items + [Item(OTHERS, 2 * ranks[a.name] + 1, training_course(a)) for a in others if a.points]


def _full(section: int, attempt: Attempt, archive: Archive) -> list[Item]:
    """Return an attempt with its source and its training; a long source of the best is cut."""
    items = [Item(section, 0, summary(attempt, archive)), Item(section, 1, _block(attempt), cut=section == BEST)]
    return items + ([Item(section, 2, training_course(attempt))] if attempt.points else [])


def _others(ranked: Sequence[Attempt], of_last: Sequence[Attempt], included: Sequence[Attempt]) -> list[Attempt]:
    """Return further attempts: the next best, the worst of the last round, then the others by rank."""
    names = {attempt.name for attempt in included}
    left = [attempt for attempt in ranked if attempt.name not in names]
    worst = of_last[-1] if len(of_last) > 2 else None
    if worst is not None and worst in left[2:]:
        left.remove(worst)
        left.insert(1, worst)
    return left


def _block(attempt: Attempt) -> str:
    return f"```python\n{attempt.source.strip()}\n```"


def baselines_text(archive: Archive) -> str:
    """Describe the fitness of each baseline, over all rounds and in each, and the comparison of attempts with them."""
    lines, model = [], archive.model()
    for baseline in archive.references:
        rounds = {number: archive.in_round(baseline, number) for number in sorted(archive.seeds)}
        of_each = ", ".join(f"{rounded(x)} in round {number}" for number, x in rounds.items() if x is not None)
        several = sum(x is not None for x in rounds.values()) > 1
        fitness = measured(baseline, archive, model)
        lines.append(f"{_known_as(baseline)}: fitness {fitness}" + (f": {of_each}" if several else ""))
    lines.append(
        "±: half of a 95 % interval, over seeds where there are several, else over the episodes of the one. Every round"
        " has its own seeds, and fitness differs between them; so attempts are compared with a baseline over the"
        f" seeds that both had, and ranked by their difference to {archive.reference}, corrected for the effect of"
        " their seeds, which is estimated from the baselines and from all candidates that were trained again."
    )
    return "\n".join(lines)


def _known_as(baseline: Attempt) -> str:
    return f"{UNTRAINED} (the policy before training)" if baseline.name == UNTRAINED else baseline.name


def history(archive: Archive, others: Mapping[str, str], max_chars: int) -> str:
    """Return a line for each attempt and each of ``others``, sources by name; the oldest are left out."""
    lines = [history_line(attempt, archive) for attempt in archive.attempts]
    lines += [cut(f"{name}: not trained yet; {described(source)}", LINE_WIDTH) for name, source in others.items()]
    first, left = len(lines), max_chars
    while first > 0 and len(lines[first - 1]) < left:
        first -= 1
        left -= len(lines[first]) + 1
    return "\n".join(lines[first:])


def left_out_text(archive: Archive) -> str:
    """Tell which functions of attempts were left out; empty if none were."""
    names: dict[str, list[str]] = {}
    for attempt in archive.attempts:
        for function in attempt.left_out:
            names.setdefault(function, []).append(attempt.name)
    if not names:
        return ""
    each = ", ".join(f"{function} (of {cut(', '.join(own), LINE_WIDTH)})" for function, own in names.items())
    return f"Not part of this search, so left out of candidates and never trained: {each}. Do not write them."


def _first_lines(text: str, room: int) -> str:
    """Shorten a code block to its first lines and a note; return an empty string if too few lines are left."""
    lines = text.splitlines()
    end = len(f"# ... {counted(len(lines), 'more line')}\n```")
    kept = 0
    while kept < len(lines) - 2 and end + len(lines[kept]) + 1 <= room:
        end += len(lines[kept]) + 1
        kept += 1
    if kept < MIN_LINES:
        return ""
    return "\n".join([*lines[:kept], f"# ... {counted(len(lines) - kept - 1, 'more line')}", "```"])
