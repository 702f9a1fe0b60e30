"""Feedback on the rounds so far for the model: the best candidates, their training, failures, and the history."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from envcoder_bench.core.words import counted, cut
from envcoder_bench.results.fitness_model import FitnessModel
from envcoder_bench.results.logs import Point
from envcoder_bench.results.pairs import CANNOT_TELL, Pair
from envcoder_bench.results.statistics import half_width
from envcoder_bench.search.archive import FAILED, OK, Archive, Attempt, difference
from envcoder_bench.search.terms import effects_text
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.outputs import TOTAL
from envcoder_bench.tasks.base import BASELINES as BASELINE_NAMES
from envcoder_bench.tasks.base import UNTRAINED

SECTIONS = ("Baselines", "Candidates", "Failed in the last round", "Other candidates")
BASELINES, CANDIDATES, FAILURES, OTHERS = range(len(SECTIONS))
MIN_LINES = 6  # a source is not cut to fewer
FULL = 4  # candidates that are shown with their source; others have a line
POINTS = 4  # evaluations shown per candidate
LINE_WIDTH = 160  # characters of a line of the history
ERROR_WIDTH = 600  # characters of an error
_FOR_USERS = re.compile(r" \(docs/[^)]*\)")  # a model cannot open pages
_FROM = re.compile(r"\(?\bfrom: *([\w, ]+)\)?\.?")  # in the first line, which is to end with it
_FROM_BELOW = re.compile(r"\(from:([\w,\s]+)\)")  # prose has the word, too
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
    position: float
    text: str
    cut: bool = False


def feedback(archive: Archive, max_chars: int) -> str:
    """Describe all rounds so far in at most ``max_chars`` characters; the least useful items are left out."""
    chosen: list[tuple[int, float, str]] = []  # section, position, text
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
    rounds, left_out = {attempt.round for attempt in archive.attempts}, left_out_text(archive)
    last = archive.of_round(max(rounds)) if rounds else []
    items = [Item(BASELINES, 0, baselines_text(archive))] if archive.baselines else []
    items += [Item(OTHERS, -1, left_out)] if left_out else []
    # with their source: the best, and those from which samples start
    ranked = archive.ranked()
    ranks = {attempt.name: k for k, attempt in enumerate(ranked)}
    in_full = shown_in_full(archive)
    for attempt in in_full:
        position, source = 4 * ranks[attempt.name], source_block(attempt)
        items.append(Item(CANDIDATES, position, block(attempt, archive)))
        items.append(Item(CANDIDATES, position + 1, source, cut=attempt is ranked[0]))
        effects = effects_text(attempt, archive)
        items += [Item(CANDIDATES, position + 2, effects)] if effects else []
    # what failed, and the file of one that training has stopped
    failed = [attempt for attempt in last if attempt.status != OK]
    items += [Item(FAILURES, position, failure(attempt)) for position, attempt in enumerate(failed)]
    stopped = next((a for a in failed if a.status == FAILED), None)
    if stopped is not None:
        items.append(Item(FAILURES, len(failed), f"The file of {stopped.name}:\n{source_block(stopped)}"))
    # one line for every other candidate, the newest round first
    order = {attempt.name: position for position, attempt in enumerate(archive.attempts)}
    for number in sorted(rounds, reverse=True):
        attempts = [a for a in archive.of_round(number) if a not in in_full and a not in failed]
        measured = archive.ranked(attempts)
        unmeasured = [a for a in attempts if a not in measured]
        items += [Item(OTHERS, order[a.name], history_line(a, archive)) for a in [*unmeasured, *reversed(measured)]]
    return items


# which candidates a prompt is about


def shown_in_full(archive: Archive) -> list[Attempt]:
    """Return the candidates that are shown with their source: where samples start, then the next best."""
    ranked = archive.ranked()
    first = [*ranked[:1], *filter(None, (fastest(archive), to_mend(archive)))]
    return list({attempt.name: attempt for attempt in [*first, *ranked]}.values())[:FULL]


def fastest(archive: Archive) -> Attempt | None:
    """Return the candidate whose fitness is highest on average over the evaluations of its training, but the best."""
    others = [a for a in archive.ranked()[1:] if len(course_of(a.points)) > 1]
    return max(others, key=lambda a: fmean(_finite([x.fitness for x in course_of(a.points)])), default=None)


def to_mend(archive: Archive) -> Attempt | None:
    """Return the candidate that has lost most: of the fitness that it had, or by episodes that ended early."""
    taken = {a.name for a in (archive.best(), fastest(archive)) if a is not None}
    others = [a for a in archive.ranked() if a.name not in taken and loss(a, archive) > 0.0]
    return max(others, key=lambda a: loss(a, archive), default=None)


def loss(attempt: Attempt, archive: Archive) -> float:
    """Return how far the fitness is below what the policy, or the episodes that have not ended early, could do."""
    points = course_of(attempt.points)
    if attempt.fitness is None or not points:
        return 0.0
    lost = max(_finite([x.fitness for x in points])) - attempt.fitness
    for course in attempt.courses:
        if 0.0 < course.active[-1] < 1.0 and course.fitness:
            lost = max(lost, fmean(course.fitness) * (1.0 / fmean(course.active) - 1.0))
    return lost


def _finite(values: Sequence[float]) -> list[float]:
    return [x for x in values if math.isfinite(x)] or [-math.inf]


# candidates in words


def source_block(attempt: Attempt) -> str:
    return f"```python\n{attempt.source.strip()}\n```"


def baselines_text(archive: Archive) -> str:
    """Describe the fitness of each baseline over all rounds, the course of its training, and what has been learned."""
    lines, model = [], archive.model()
    for baseline in archive.references:
        explained = " (the policy before training)" if baseline.name == UNTRAINED else ""
        lines.append(f"{baseline.name}{explained}: {measured(baseline, archive, model)}")
    best, untrained = archive.best(), archive.untrained
    if best is not None and untrained is not None and (best.fitness or 0.0) <= (untrained.fitness or 0.0):
        lines.append("Nothing has been learned yet: no candidate is above the policy before training.")
    return "\n".join(lines)


def block(attempt: Attempt, archive: Archive) -> str:
    """Describe a candidate's fitness, its training and its episodes beside those of the baseline; see ``system.md``."""
    lines = [summary(attempt, archive), *(f"remark: {text}" for text in attempt.remarks)]
    reference = archive.baselines.get(archive.reference)
    points, human = course_of(attempt.points), [] if reference is None else _same(reference.points, attempt)
    if points:
        lines += _training_lines(points, {x.iteration: x for x in course_of(human)}, archive.reference)
    lines += _episode_lines(attempt, reference, archive)
    return "\n".join(lines)


def _same(values: Sequence[Any], attempt: Attempt) -> list[Any]:
    """Return points or courses of the baseline with the seeds of an attempt."""
    return [x for x in values if x.seed in attempt.by_seed]


def _training_lines(points: Sequence[Point], baseline: Mapping[int, Point], name: str) -> list[str]:
    last = points[-1].iteration if not baseline else max(baseline)
    drawn = _subsample(points, POINTS)
    at = ", ".join(f"{100 * x.iteration / last:.0f}" for x in drawn)
    beside = [baseline.get(x.iteration) for x in drawn]
    versus = f" ({name} {_row([x.fitness if x else math.nan for x in beside])})" if any(beside) else ""
    lengths = " ".join(rounded(x.episode_length) for x in drawn)
    lines = [f"at {at} % of training: fitness {_row([x.fitness for x in drawn])}{versus}; steps {lengths}"]
    # the terms of the reward, and their shares at the last point
    names = [name for name in dict.fromkeys(name for x in drawn for name in x.components) if name != TOTAL]
    sizes = {name: abs(_mean_of(drawn[-1], name)) for name in names}
    total = math.fsum(x for x in sizes.values() if math.isfinite(x))
    shares = {name: f" ({100 * size / total:.0f} %)" for name, size in sizes.items() if total and math.isfinite(size)}
    terms = [f"{name} {_row([_mean_of(x, name) for x in drawn], 2)}{shares.get(name, '')}" for name in names or [TOTAL]]
    if any(x.components for x in drawn):
        lines.append(f"terms per step, with exploration noise: {', '.join(terms)}")
    return lines


def _mean_of(point: Point, name: str) -> float:
    return point.components[name][0] if name in point.components else math.nan


def _episode_lines(attempt: Attempt, reference: Attempt | None, archive: Archive) -> list[str]:
    """Describe where in the episodes the fitness comes from, and why episodes end."""
    lines = []
    human = [] if reference is None else _same(reference.courses, attempt)
    for title, courses in (("judged by tenths of the episode", attempt.courses), (archive.reference, human)):
        if courses:
            fitness, active = ([fmean(x) for x in zip(*(getattr(c, name) for c in courses))] for name in _COURSE)
            running = " ".join(f"{100 * x:.0f}" for x in active)
            lines.append(f"{title}: {_row(fitness)}" + f"; still running {running} %" * (min(active) < 0.995))
    if attempt.ended:
        lines.append(f"ended early: {attempt.ended}, of {counted(archive.episodes * len(attempt.by_seed), 'episode')}")
    return lines


_COURSE = ("fitness", "active")


def _row(values: Sequence[float], digits: int = 3) -> str:
    """Return numbers as ``.36 1.2 -.05``; unknown ones are ``?``."""
    texts = [f"{x:.{digits}g}" if abs(x) >= 10 or digits < 3 else f"{x:.2f}" for x in values]
    short = {"nan": "?", "0.00": "0", "-0.00": "0", "1.00": "1"}
    return " ".join(short.get(text, re.sub(r"^(-?)0\.", r"\1.", text)) for text in texts)


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
    """Describe an attempt's fitness, whether it differs from the baseline, its parents, and what is odd about it."""
    model = archive.model()
    parents = f" from {', '.join(attempt.parents)}" if attempt.parents else ""
    text = f"{attempt.name}{parents}: fitness {measured(attempt, archive, model)}{_compared(attempt, archive)}"
    if attempt.stopped_at:
        text += f"; stopped at iteration {attempt.stopped_at}, where it was too far behind the best to win"
    return text + (f"; hacked? {attempt.hacked}" if attempt.hacked else "")


def measured(attempt: Attempt, archive: Archive, model: FitnessModel) -> str:
    """Return ``0.52 ± 0.08 over 3 seeds``, or ``0.52 (1 seed)``, whose interval says nothing of other seeds."""
    number = rounded(attempt.fitness)
    if attempt.fitness is None or len(attempt.by_seed) < 2:
        return f"{number} (1 seed)" if attempt.by_seed else number
    interval = archive.interval(attempt, model)
    half = "" if interval is None else f" ± {half_width(attempt.fitness, *interval):.2g}"
    return f"{number}{half} over {counted(len(attempt.by_seed), 'seed')}"


def _compared(attempt: Attempt, archive: Archive) -> str:
    """Return the difference to the baseline, as it is expected on new seeds if their spread is known, and a verdict."""
    reference, pair = archive.baselines.get(archive.reference), _pair(attempt, archive)
    gap = None if reference is None else difference(attempt, reference)
    if pair is not None:
        half = half_width(pair.mean, pair.low, pair.high)
        return f"; on new seeds {pair.mean:+.2g} ± {half:.2g} against {pair.second}: {_verdict(pair)}"
    return "" if gap is None else f"; {gap:+.3g} against {archive.reference}, on one seed: {CANNOT_TELL}"


def _pair(attempt: Attempt, archive: Archive) -> Pair | None:
    """Return the difference of an attempt to the baseline; None if the spread of seeds is not known."""
    merits = archive.merits()
    if attempt.name not in merits.names or merits.reference is None or not merits.has_spread:
        return None
    return merits.pair(attempt.name, merits.reference)


def _verdict(pair: Pair | None) -> str:
    return CANNOT_TELL if pair is None or pair.verdict == CANNOT_TELL else f"{pair.verdict} beyond luck"


def course_of(points: Sequence[Point]) -> list[Point]:
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


def _subsample(points: Sequence[Point], count: int) -> list[Point]:
    """Return at most ``count`` evenly spaced points, including the last."""
    if len(points) <= count:
        return [*points]
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
    if attempt.fitness is not None:
        seeds = f" of {len(attempt.by_seed)} seeds" if len(attempt.by_seed) > 1 else ""
        baseline = archive.baselines.get(archive.reference)
        against = None if baseline is None else difference(attempt, baseline)
        verdict = _verdict(_pair(attempt, archive))
        compared = "" if against is None else f" ({against:+.3g} against {archive.reference}: {verdict})"
        stopped = f" when stopped at iteration {attempt.stopped_at}" if attempt.stopped_at else ""
        score = f"{rounded(attempt.fitness)}{seeds}{compared}{stopped}{'; hacked?' * bool(attempt.hacked)}"
    else:
        score = f"failed: {'' if attempt.fault is None else attempt.fault.without_folders().text}"
    return cut(f"{attempt.name}{parents}: {score}; {described(attempt.source)}", LINE_WIDTH)


def parents(source: str) -> list[str]:
    """Return the candidates that a file's docstring names as its origin: ``(from: r1_00, r1_03)``."""
    text = _docstring(source)
    lists = [*_FROM.findall(text.partition("\n")[0]), *_FROM_BELOW.findall(text)]
    return list(dict.fromkeys(re.findall(r"\w+", " ".join(lists))))


def described(source: str) -> str:
    return _FROM.sub("", idea(source)).strip() or ("no docstring" if source else "no code")


def idea(source: str) -> str:
    """Return the first line of a file's docstring, without parsing the untrusted file; empty without one."""
    line = _docstring(source).partition("\n")[0].rstrip()
    return "" if line[:1] in ('"', "'") else line


def _docstring(source: str) -> str:
    text = source[:2000].lstrip()
    while text.startswith("#"):
        text = text.partition("\n")[2].lstrip()
    if text[:1] in tuple("rRuU"):
        text = text[1:]
    quote = next((quote for quote in ('"""', "'''", '"', "'") if text.startswith(quote)), "")
    return text[len(quote) :].lstrip().partition(quote)[0] if quote else ""


def rounded(value: float | None) -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value:.3g}"
