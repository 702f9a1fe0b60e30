"""What a model is told of the rounds so far: the best candidates and how they learned, what failed, what was tried."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from envcoder_bench.report.points import Point
from envcoder_bench.report.table import split_place
from envcoder_bench.search.records import FAILED, OK, Archive, Attempt, best_of, difference

POINTS = 10  # evaluations shown
LINE = 160  # characters of a line of the history
ERROR = 600  # characters of an error
SECTIONS = ("The baselines", "The best so far", "The best of the last round", "Failed in the last round", "History")
BASELINES, BEST, LAST, FAILURES, HISTORY = range(len(SECTIONS))

_DOCSTRING = re.compile(r'\s*(?:#.*\n\s*)*[rRuU]?("""|\'\'\'|"|\')\s*([^\s"\'][^\n]*?)\s*(?:\1|\n|$)')


@dataclass(frozen=True)
class Piece:
    """A text that is told whole or not at all; ``cut``: as many of its first lines as there is room for."""

    section: int
    text: str
    cut: bool = False


def feedback(archive: Archive, max_chars: int) -> str:
    """Tell what came of all rounds so far in at most ``max_chars`` characters: the oldest and least useful go first."""
    chosen: List[Tuple[int, int, str]] = []  # section, place in it, text
    left = max_chars + 1  # the last line has no end
    for piece, place in _pieces(archive):
        title = 0 if any(section == piece.section for section, _, _ in chosen) else len(_title(piece.section)) + 1
        text = piece.text if len(piece.text) + 1 + title <= left else ""
        if piece.cut and not text:
            text = _first_lines(piece.text, left - title - 1)
        if text:
            chosen.append((piece.section, place, text))
            left -= len(text) + 1 + title
    lines: List[str] = []
    for section in sorted({section for section, _, _ in chosen}):
        lines += [_title(section), *(text for own, _, text in sorted(chosen) if own == section)]
    return "\n".join(lines)


def _title(section: int) -> str:
    return f"## {SECTIONS[section]}"


def _pieces(archive: Archive) -> List[Tuple[Piece, int]]:
    """All there is to tell, the most useful first, each with its place in its section."""
    best, rounds = archive.best(), {attempt.round for attempt in archive.attempts}
    last = archive.of_round(max(rounds)) if rounds else []
    pieces = [(Piece(BASELINES, baselines_line(archive)), 0)] if archive.baselines else []
    told: List[Tuple[int, Attempt]] = [(BEST, best)] if best is not None else []
    best_of_last = best_of(last)
    if best_of_last is not None and best_of_last is not best:
        told.append((LAST, best_of_last))
    for section, attempt in told:
        pieces.append((Piece(section, summary(attempt, archive)), 0))
        pieces.append((Piece(section, f"```python\n{attempt.source.strip()}\n```", cut=section == BEST), 1))
        if attempt.points:
            pieces.append((Piece(section, course(attempt)), 2))
    failed = [attempt for attempt in last if attempt.status != OK]
    pieces += [(Piece(FAILURES, failure(attempt)), place) for place, attempt in enumerate(failed)]
    places = {attempt.name: place for place, attempt in enumerate(archive.attempts)}
    for number in sorted(rounds, reverse=True):
        ranked = sorted(archive.of_round(number), key=lambda a: -math.inf if a.fitness is None else a.fitness)
        pieces += [(Piece(HISTORY, history_line(a, archive)), places[a.name]) for a in reversed(ranked)]
    return pieces


def baselines_line(archive: Archive) -> str:
    """The fitness of each baseline."""
    return "; ".join(f"{name}: fitness {_number(a.fitness)}" for name, a in archive.baselines.items())


def summary(attempt: Attempt, archive: Archive) -> str:
    """Fitness, how it compares, episode length, where it comes from."""
    text = f"{attempt.name}, of round {attempt.round}: fitness {_number(attempt.fitness)}{_compared(attempt, archive)}"
    if attempt.episode_length is not None:
        text += f"; episodes of {_number(attempt.episode_length)} steps"
    if attempt.parents:
        text += f"; made from {', '.join(attempt.parents)}"
    return text


def _compared(attempt: Attempt, archive: Archive) -> str:
    differences = {name: difference(attempt, baseline) for name, baseline in archive.baselines.items()}
    told = [f"{x:+.3g} against {name}" for name, x in differences.items() if x is not None]
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


def _over_seeds(points: Sequence[Point]) -> List[Point]:
    """One point for each iteration: the means over the seeds, but least minimum and greatest maximum."""
    by_iteration: Dict[int, List[Point]] = {}
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


def _thinned(points: List[Point], most: int) -> List[Point]:
    """At most so many, spread evenly, the last one included."""
    if len(points) <= most:
        return points
    return [points[round((k + 1) * len(points) / most) - 1] for k in range(most)]


def failure(attempt: Attempt) -> str:
    """Why a candidate failed, with the line of its file."""
    what = "stopped in training" if attempt.status == FAILED else "was not trained"
    return f"{attempt.name} {what}: {explain(attempt.error, attempt.source)}"


def explain(error: str, source: str) -> str:
    """An error as ``NAME:LINE: MESSAGE`` without folders, and the text of that line."""
    place, message = split_place(error)
    message = _cut(message, ERROR)
    if not place:
        return message
    file, _, number = place.rpartition(":")
    lines = source.splitlines()
    text = _cut(lines[int(number) - 1].strip(), LINE) if 0 < int(number) <= len(lines) else ""
    return f"{Path(file).name}:{number}: {message}" + (f"\n    {text}" if text else "")


def history_line(attempt: Attempt, archive: Archive) -> str:
    """Name, parents, score and idea of an attempt in a line of at most LINE characters."""
    parents = f" from {', '.join(attempt.parents)}" if attempt.parents else ""
    human = archive.baselines.get("human")
    against = None if human is None else difference(attempt, human)
    if attempt.fitness is not None:
        score = f"{_number(attempt.fitness)}" + ("" if against is None else f" ({against:+.3g} against human)")
    else:
        score = f"failed: {split_place(attempt.error)[1]}"
    return _cut(f"{attempt.name}{parents}: {score}; {idea(attempt.source) or 'no code'}", LINE)


def idea(source: str) -> str:
    """The first line of a file's docstring, found without parsing what nobody has read; empty without one."""
    match = _DOCSTRING.match(source[:2000])
    return match.group(2) if match else ""


def _first_lines(text: str, room: int) -> str:
    """The first lines of a code block, with a word on what is missing; empty where little is left."""
    lines = text.splitlines()
    for kept in range(len(lines) - 2, 5, -1):
        shorter = "\n".join([*lines[:kept], f"# ... {len(lines) - kept - 1} more lines", "```"])
        if len(shorter) <= room:
            return shorter
    return ""


def _number(value: Optional[float]) -> str:
    return "unknown" if value is None or math.isnan(value) else f"{value:.3g}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
