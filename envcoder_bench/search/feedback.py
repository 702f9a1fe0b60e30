"""What a model is told of the rounds so far: the best candidates and how they learned, what failed, what was tried."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from envcoder_bench.report.points import Point
from envcoder_bench.report.ranking import mean_interval
from envcoder_bench.report.table import half_width, split_place
from envcoder_bench.report.words import counted, without_folders
from envcoder_bench.search.records import FAILED, OK, Archive, Attempt, difference, differences
from envcoder_bench.tasks.base import BASELINES as BASELINE_NAMES

POINTS = 10  # evaluations shown
LINE = 160  # characters of a line of the history
ERROR = 600  # characters of an error
SECTIONS = (
    "The baselines", "The best so far", "The best of the last round", "Others, the best first",
    "Failed in the last round", "History",
)  # fmt: skip
BASELINES, BEST, LAST, OTHERS, FAILURES, HISTORY = range(len(SECTIONS))
LEAST_LINES = 6  # of a source that is cut
NOT_CANDIDATES = (*BASELINE_NAMES, "fitness")  # files whose lines an error may name, too
FIRST_OTHERS = 3  # sources of others that are told rather than the history


@dataclass(frozen=True)
class Piece:
    """A text that is told whole or not at all; ``cut``: as many of its first lines as there is room for.

    Attributes:
        section, place: where it is told: an index of SECTIONS, and the order in it.
    """

    section: int
    place: int
    text: str
    cut: bool = False


def feedback(archive: Archive, max_chars: int) -> str:
    """Tell what came of all rounds so far in at most ``max_chars`` characters: the least useful is left out first."""
    chosen: list[tuple[int, int, str]] = []  # section, place in it, text
    begun: set[int] = set()
    left = max_chars + 2  # the last line has no end, and the first title no empty line
    for piece in _pieces(archive):
        title = 0 if piece.section in begun else len(_title(piece.section)) + 2  # an empty line before it
        text = piece.text if len(piece.text) + 1 + title <= left else ""
        if piece.cut and not text:
            text = _first_lines(piece.text, left - title - 1)
        if text:
            begun.add(piece.section)
            chosen.append((piece.section, piece.place, text))
            left -= len(text) + 1 + title
    lines: list[str] = []
    last = -1
    for section, _, text in sorted(chosen):
        lines += [text] if section == last else ["", _title(section), text]
        last = section
    return "\n".join(lines[1:])


def _title(section: int) -> str:
    return f"## {SECTIONS[section]}"


def _pieces(archive: Archive) -> list[Piece]:
    """All there is to tell, the most useful first."""
    ranked, rounds = archive.ranked(), {attempt.round for attempt in archive.attempts}
    last = archive.of_round(max(rounds)) if rounds else []
    told = ranked[:1]
    pieces = [Piece(BASELINES, 0, baselines_text(archive))] if archive.baselines else []
    pieces += _whole(BEST, ranked[0], archive) if ranked else []
    of_last = archive.ranked(last)
    if of_last and of_last[0] is not ranked[0]:
        told.append(of_last[0])
        pieces += _whole(LAST, of_last[0], archive)
    failed = [attempt for attempt in last if attempt.status != OK]
    pieces += [Piece(FAILURES, place, failure(attempt)) for place, attempt in enumerate(failed)]

    others, places = _others(archive, ranked, of_last, told), {a.name: k for k, a in enumerate(ranked)}
    stopped = next((a for a in failed if a.status == FAILED), None)
    sources = [Piece(OTHERS, 2 * places[a.name], f"{summary(a, archive)}\n{_block(a)}") for a in others]
    if stopped is not None:
        sources.insert(
            FIRST_OTHERS - 1, Piece(FAILURES, len(failed), f"The file of {stopped.name}:\n{_block(stopped)}")
        )
    pieces += sources[:FIRST_OTHERS]
    made = {attempt.name: place for place, attempt in enumerate(archive.attempts)}
    for number in sorted(rounds, reverse=True):
        own = archive.of_round(number)
        found = archive.ranked(own)
        unranked = [a for a in own if a not in found]
        pieces += [Piece(HISTORY, made[a.name], history_line(a, archive)) for a in [*unranked, *reversed(found)]]
    pieces += sources[FIRST_OTHERS:]
    return pieces + [Piece(OTHERS, 2 * places[a.name] + 1, course(a)) for a in others if a.points]


def _whole(section: int, attempt: Attempt, archive: Archive) -> list[Piece]:
    """An attempt with its source and its training; of a source too long to tell, the first lines."""
    pieces = [Piece(section, 0, summary(attempt, archive)), Piece(section, 1, _block(attempt), cut=section == BEST)]
    return pieces + ([Piece(section, 2, course(attempt))] if attempt.points else [])


def _others(
    archive: Archive, ranked: Sequence[Attempt], of_last: Sequence[Attempt], told: Sequence[Attempt]
) -> list[Attempt]:
    """Attempts whose sources are told besides: the next best, the worst of the last round, then the rest by rank."""
    names = {attempt.name for attempt in told}
    left = [attempt for attempt in ranked if attempt.name not in names]
    worst = of_last[-1] if len(of_last) > 2 else None
    if worst is not None and worst in left[2:]:
        left.remove(worst)
        left.insert(1, worst)
    return left


def _block(attempt: Attempt) -> str:
    return f"```python\n{attempt.source.strip()}\n```"


def baselines_text(archive: Archive) -> str:
    """The fitness of each baseline, over all rounds and in each, and how attempts are compared with them."""
    lines = []
    for name, baseline in archive.baselines.items():
        rounds = {number: archive.in_round(baseline, number) for number in sorted(archive.seeds)}
        of_each = ", ".join(f"{_number(x)} in round {number}" for number, x in rounds.items() if x is not None)
        several = sum(x is not None for x in rounds.values()) > 1
        lines.append(f"{name}: fitness {measured(baseline)}" + (f": {of_each}" if several else ""))
    lines.append(
        "±: half of a 95 % interval, over seeds where there are several, else over the episodes of the one. Every round"
        " has seeds of its own, and fitness differs between them; so attempts are compared with a baseline over the"
        f" seeds that both had, and ranked by what they are above {archive.reference}, without the luck of their seeds"
        " that the baselines and whatever was trained again had as well."
    )
    return "\n".join(lines)


def summary(attempt: Attempt, archive: Archive) -> str:
    """Fitness, how it compares, episode length, where it comes from."""
    text = f"{attempt.name}, of round {attempt.round}: fitness {measured(attempt)}{_compared(attempt, archive)}"
    if attempt.episode_length is not None:
        steps = _number(attempt.episode_length)
        text += f"; episodes of {steps} step{'' if steps == '1' else 's'}"
    if attempt.parents:
        text += f"; made from {', '.join(attempt.parents)}"
    return text


def measured(attempt: Attempt) -> str:
    """``0.52 ± 0.08 over 3 seeds``, or ``0.52 ± 0.01 over the episodes of 1 seed``."""
    number, interval = _number(attempt.fitness), attempt.interval
    if attempt.fitness is None or not attempt.by_seed:
        return number
    half = "" if interval is None else f" ± {half_width(attempt.fitness, *interval):.2g}"
    over = "over the episodes of" if half and len(attempt.by_seed) == 1 else "over"
    return f"{number}{half} {over} {counted(len(attempt.by_seed), 'seed')}"


def _compared(attempt: Attempt, archive: Archive) -> str:
    told = []
    for name, baseline in archive.baselines.items():
        found = differences(attempt, baseline)
        if found:
            mean, low, high = mean_interval(found)
            half = "" if math.isnan(low) else f" ± {half_width(mean, low, high):.2g}"
            told.append(f"{mean:+.3g}{half} against {name}")
    return f" ({', '.join(told)})" if told else ""


def course(attempt: Attempt) -> str:
    """Fitness, episode length and every reward component at ten points of the training, a row each."""
    points = _thinned(_over_seeds(attempt.points), POINTS)
    names = list(dict.fromkeys(name for point in points for name in point.components))
    rows = {
        "iteration": [str(point.iteration) for point in points],
        "fitness": [_number(point.fitness) for point in points],
        "episode length": [_number(point.episode_length) for point in points],
    }
    for name in names:
        for k, what in enumerate(("mean", "min", "max")):
            rows[f"{name} {what}"] = [_number(point.components.get(name, (math.nan,) * 3)[k]) for point in points]
    told = "In the course of its training; reward components are per step, since the point before:"
    return "\n".join([told, *(f"{name}: {', '.join(values)}" for name, values in rows.items())])


def _over_seeds(points: Sequence[Point]) -> list[Point]:
    """One point for each iteration: the means over the seeds, but least minimum and greatest maximum."""
    by_iteration: dict[int, list[Point]] = {}
    for point in points:
        by_iteration.setdefault(point.iteration, []).append(point)
    joined = []
    for iteration, own in sorted(by_iteration.items()):
        components = {}
        for name in dict.fromkeys(name for point in own for name in point.components):
            means, lows, highs = zip(*(p.components[name] for p in own if name in p.components))
            components[name] = (_mean(means), min(lows), max(highs))
        fitness, length = _mean([p.fitness for p in own]), _mean([p.episode_length for p in own])
        joined.append(Point(own[0].candidate, own[0].seed, iteration, own[0].env_steps, fitness, length, components))
    return joined


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _thinned(points: list[Point], most: int) -> list[Point]:
    """At most so many, spread evenly, the last one included."""
    if len(points) <= most:
        return points
    return [points[round((k + 1) * len(points) / most) - 1] for k in range(most)]


def failure(attempt: Attempt) -> str:
    """Why a candidate failed, with the line of its file."""
    what = "stopped in training" if attempt.status == FAILED else "was not trained"
    return f"{attempt.name} {what}: {explain(attempt.error, attempt.source)}"


def explain(error: str, source: str) -> str:
    """An error as ``NAME:LINE: MESSAGE`` without folders, and the text of that line where it is the candidate's."""
    place, message = split_place(without_folders(error))
    message = _cut(message, ERROR)
    if not place:
        return message
    file, _, number = place.rpartition(":")
    lines = source.splitlines() if Path(file).stem not in NOT_CANDIDATES else []
    text = _cut(lines[int(number) - 1].strip(), LINE) if 0 < int(number) <= len(lines) else ""
    return f"{Path(file).name}:{number}: {message}" + (f"\n    {text}" if text else "")


def history_line(attempt: Attempt, archive: Archive) -> str:
    """Name, parents, score and idea of an attempt in a line of at most LINE characters."""
    parents = f" from {', '.join(attempt.parents)}" if attempt.parents else ""
    baseline = archive.baselines.get(archive.reference)
    against = None if baseline is None else difference(attempt, baseline)
    if attempt.fitness is not None:
        seeds = f" of {len(attempt.by_seed)} seeds" if len(attempt.by_seed) > 1 else ""
        compared = "" if against is None else f" ({against:+.3g} against {archive.reference})"
        score = f"{_number(attempt.fitness)}{seeds}{compared}"
    else:
        score = f"failed: {split_place(without_folders(attempt.error))[1]}"
    return _cut(f"{attempt.name}{parents}: {score}; {idea(attempt.source) or 'no code'}", LINE)


def idea(source: str) -> str:
    """The first line of a file's docstring, found without parsing what nobody has read; empty without one."""
    text = source[:2000].lstrip()
    while text.startswith("#"):
        text = text.partition("\n")[2].lstrip()
    if text[:1] in tuple("rRuU"):
        text = text[1:]
    quote = next((quote for quote in ('"""', "'''", '"', "'") if text.startswith(quote)), "")
    line = text[len(quote) :].lstrip().partition("\n")[0].partition(quote or "\n")[0].rstrip()
    return "" if not quote or line[:1] in ('"', "'") else line


def _first_lines(text: str, room: int) -> str:
    """The first lines of a code block, with a word on what is missing; empty where little is left."""
    lines = text.splitlines()
    end = len(f"# ... {counted(len(lines), 'more line')}\n```")
    kept = 0
    while kept < len(lines) - 2 and end + len(lines[kept]) + 1 <= room:
        end += len(lines[kept]) + 1
        kept += 1
    if kept < LEAST_LINES:
        return ""
    return "\n".join([*lines[:kept], f"# ... {counted(len(lines) - kept - 1, 'more line')}", "```"])


def _number(value: float | None) -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value:.3g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
