"""Feedback on the rounds so far for the model: the best candidates, their training, failures, and the history."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from envcoder_bench.core.words import counted, cut
from envcoder_bench.results.logs import Point
from envcoder_bench.results.statistics import FitnessModel, half_width
from envcoder_bench.search.archive import FAILED, OK, Archive, Attempt, compared, difference
from envcoder_bench.search.terms import effects_text
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.tasks.base import BASELINES as BASELINE_NAMES
from envcoder_bench.tasks.base import UNTRAINED

SECTIONS = (
    "The baselines", "The best so far", "The best of the last round", "Others, the best first",
    "Failed in the last round", "History",
)  # fmt: skip
BASELINES, BEST, LAST, OTHERS, FAILURES, HISTORY = range(len(SECTIONS))
MIN_LINES = 6  # a source is not cut to fewer
FIRST_OTHERS = 3  # sources of other candidates that take precedence over the history
POINTS = 10  # evaluations shown per candidate
LINE_WIDTH = 160  # characters of a line of the history
ERROR_WIDTH = 600  # characters of an error
_FOR_USERS = re.compile(r" \(docs/[^)]*\)")  # a model cannot open pages
NOT_CANDIDATES = (*BASELINE_NAMES, "fitness")  # other files whose lines an error may name


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
    # chosen by usefulness, printed by section
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
    # the best, the best of the last round, and what failed in it
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

    # sources of others; the file of a failure comes before the last of the first ones
    others, ranks = _others(ranked, of_last, included), {a.name: k for k, a in enumerate(ranked)}
    stopped = next((a for a in failed if a.status == FAILED), None)
    sources = [Item(OTHERS, 2 * ranks[a.name], f"{summary(a, archive)}\n{_block(a)}") for a in others]
    if stopped is not None:
        sources.insert(FIRST_OTHERS - 1, Item(FAILURES, len(failed), f"The file of {stopped.name}:\n{_block(stopped)}"))
    items += sources[:FIRST_OTHERS]
    # then one line for every candidate, the newest round first, and the rest of the sources
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
    items += [Item(section, 2, training_course(attempt))] if attempt.points else []
    effects = effects_text(attempt, archive)
    return items + ([Item(section, 3, effects)] if effects else [])


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
        explained = " (the policy before training)" if baseline.name == UNTRAINED else ""
        lines.append(f"{baseline.name}{explained}: fitness {fitness}" + (f": {of_each}" if several else ""))
    lines.append(
        "±: half of a 95 % interval, over seeds where there are several, else over the episodes of the one. Every round"
        " has its own seeds, and fitness differs between them; so attempts are compared with a baseline over the"
        f" seeds that both had, and ranked by their difference to {archive.reference}, corrected for the effect of"
        " their seeds, which is estimated from the baselines and from all candidates that were trained again."
    )
    return "\n".join(lines)


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
    each = ", ".join(f"{function} (of {cut(', '.join(attempts), LINE_WIDTH)})" for function, attempts in names.items())
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


# an attempt in words


def summary(attempt: Attempt, archive: Archive) -> str:
    """Describe an attempt's fitness, its difference to the baselines, episode length and parents."""
    model = archive.model()
    fitness = f"{measured(attempt, archive, model)}{_compared(attempt, archive, model)}"
    text = f"{attempt.name}, of round {attempt.round}: fitness {fitness}"
    if attempt.episode_length is not None:
        steps = rounded(attempt.episode_length)
        text += f"; episodes of {steps} step{'' if steps == '1' else 's'}"
    if attempt.stopped_at:
        text += f"; stopped at iteration {attempt.stopped_at}, where it was too far behind the best to win"
    if attempt.parents:
        text += f"; made from {', '.join(attempt.parents)}"
    return text


def measured(attempt: Attempt, archive: Archive, model: FitnessModel) -> str:
    """Return ``0.52 ± 0.08 over 3 seeds`` or ``0.52 ± 0.01 over the episodes of 1 seed``."""
    number, interval = rounded(attempt.fitness), archive.interval(attempt, model)
    if attempt.fitness is None or not attempt.by_seed:
        return number
    half = "" if interval is None else f" ± {half_width(attempt.fitness, *interval):.2g}"
    over = "over the episodes of" if half and len(attempt.by_seed) == 1 else "over"
    return f"{number}{half} {over} {counted(len(attempt.by_seed), 'seed')}"


def _compared(attempt: Attempt, archive: Archive, model: FitnessModel) -> str:
    comparisons = []
    for name, baseline in archive.baselines.items():
        gap = compared(attempt, baseline, model)
        if gap is not None:
            half = "" if math.isnan(gap.low) else f" ± {half_width(gap.mean, gap.low, gap.high):.2g}"
            comparisons.append(f"{gap.mean:+.3g}{half} against {name}")
    return f" ({', '.join(comparisons)})" if comparisons else ""


def training_course(attempt: Attempt) -> str:
    """Return rows of fitness, episode length and each reward component at up to ten points of the training."""
    points = _subsample(_over_seeds(attempt.points), POINTS)
    names = list(dict.fromkeys(name for point in points for name in point.components))
    rows = {
        "iteration": [str(point.iteration) for point in points],
        "fitness": [rounded(point.fitness) for point in points],
        "episode length": [rounded(point.episode_length) for point in points],
    }
    for name in names:
        for k, statistic in enumerate(("mean", "min", "max")):
            rows[f"{name} {statistic}"] = [rounded(point.components.get(name, (math.nan,) * 3)[k]) for point in points]
    head = (
        "In the course of its training; only the last point has full episodes, the others may have the first steps"
        " alone; reward components are per step, since the previous point:"
    )
    return "\n".join([head, *(f"{name}: {', '.join(values)}" for name, values in rows.items())])


def _over_seeds(points: Sequence[Point]) -> list[Point]:
    """Join the points of each iteration: means over the seeds, minimum of minima and maximum of maxima."""
    by_iteration: dict[int, list[Point]] = {}
    for point in points:
        by_iteration.setdefault(point.iteration, []).append(point)
    over_seeds = []
    for iteration, of_iteration in sorted(by_iteration.items()):
        components = {}
        for name in dict.fromkeys(name for point in of_iteration for name in point.components):
            means, lows, highs = zip(*(p.components[name] for p in of_iteration if name in p.components))
            components[name] = (fmean(means), min(lows), max(highs))
        fitness, length = fmean([p.fitness for p in of_iteration]), fmean([p.episode_length for p in of_iteration])
        first = of_iteration[0]
        over_seeds.append(Point(first.candidate, first.seed, iteration, first.env_steps, fitness, length, components))
    return over_seeds


def _subsample(points: list[Point], count: int) -> list[Point]:
    """Return at most ``count`` evenly spaced points, including the last."""
    if len(points) <= count:
        return points
    return [points[round((k + 1) * len(points) / count) - 1] for k in range(count)]


def failure(attempt: Attempt) -> str:
    """Describe why a candidate failed, with the line of its file."""
    event = "stopped in training" if attempt.status == FAILED else "was not trained"
    return f"{attempt.name} {event}: {_explained(attempt)}"


def _explained(attempt: Attempt) -> str:
    return "" if attempt.fault is None else explain(attempt.fault, attempt.source)


def explain(fault: Fault, source: str) -> str:
    """Return a fault as ``NAME:LINE: MESSAGE`` without folders, followed by that line of the candidate's source."""
    fault = fault.without_folders()
    message = cut(_FOR_USERS.sub("", fault.text), ERROR_WIDTH)
    lines = source.splitlines() if Path(fault.file).stem not in NOT_CANDIDATES else []
    text = cut(lines[fault.line - 1].strip(), LINE_WIDTH) if fault.line and 0 < fault.line <= len(lines) else ""
    return (f"{fault.place}: {message}" if fault.place else message) + (f"\n    {text}" if text else "")


def history_line(attempt: Attempt, archive: Archive) -> str:
    """Return name, parents, score and idea of an attempt in a line of at most LINE_WIDTH characters."""
    parents = f" from {', '.join(attempt.parents)}" if attempt.parents else ""
    baseline = archive.baselines.get(archive.reference)
    against = None if baseline is None else difference(attempt, baseline)
    if attempt.fitness is not None:
        seeds = f" of {len(attempt.by_seed)} seeds" if len(attempt.by_seed) > 1 else ""
        compared = "" if against is None else f" ({against:+.3g} against {archive.reference})"
        stopped = f" when stopped at iteration {attempt.stopped_at}" if attempt.stopped_at else ""
        score = f"{rounded(attempt.fitness)}{seeds}{compared}{stopped}"
    else:
        score = f"failed: {'' if attempt.fault is None else attempt.fault.without_folders().text}"
    return cut(f"{attempt.name}{parents}: {score}; {described(attempt.source)}", LINE_WIDTH)


def described(source: str) -> str:
    return idea(source) or ("no docstring" if source else "no code")


def idea(source: str) -> str:
    """Return the first line of a file's docstring, without parsing the untrusted file; empty without one."""
    text = source[:2000].lstrip()
    while text.startswith("#"):
        text = text.partition("\n")[2].lstrip()
    if text[:1] in tuple("rRuU"):
        text = text[1:]
    quote = next((quote for quote in ('"""', "'''", '"', "'") if text.startswith(quote)), "")
    line = text[len(quote) :].lstrip().partition("\n")[0].partition(quote or "\n")[0].rstrip()
    return "" if not quote or line[:1] in ('"', "'") else line


def rounded(value: float | None) -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value:.3g}"
