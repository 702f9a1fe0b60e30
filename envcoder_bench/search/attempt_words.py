"""Descriptions of a search's attempts in words, for prompts."""

import math
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.report.logs import Point
from envcoder_bench.report.statistics import FitnessModel
from envcoder_bench.report.table import half_width, split_place
from envcoder_bench.report.words import counted, cut, without_folders
from envcoder_bench.search.records import FAILED, Archive, Attempt, compared, difference
from envcoder_bench.tasks.base import BASELINES as BASELINE_NAMES

POINTS = 10  # evaluations shown per candidate
LINE_WIDTH = 160  # characters of a line of the history
ERROR_WIDTH = 600  # characters of an error
NOT_CANDIDATES = (*BASELINE_NAMES, "fitness")  # other files whose lines an error may name


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
        found = compared(attempt, baseline, model)
        if found is not None:
            half = "" if math.isnan(found.low) else f" ± {half_width(found.mean, found.low, found.high):.2g}"
            comparisons.append(f"{found.mean:+.3g}{half} against {name}")
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


def _subsample(points: list[Point], count: int) -> list[Point]:
    """Return at most ``count`` evenly spaced points, including the last."""
    if len(points) <= count:
        return points
    return [points[round((k + 1) * len(points) / count) - 1] for k in range(count)]


def failure(attempt: Attempt) -> str:
    """Describe why a candidate failed, with the line of its file."""
    event = "stopped in training" if attempt.status == FAILED else "was not trained"
    return f"{attempt.name} {event}: {explain(attempt.error, attempt.source)}"


def explain(error: str, source: str) -> str:
    """Return an error as ``NAME:LINE: MESSAGE`` without folders, followed by that line of the candidate's source."""
    place, message = split_place(without_folders(error))
    message = cut(message, ERROR_WIDTH)
    if not place:
        return message
    file, _, number = place.rpartition(":")
    lines = source.splitlines() if Path(file).stem not in NOT_CANDIDATES else []
    text = cut(lines[int(number) - 1].strip(), LINE_WIDTH) if 0 < int(number) <= len(lines) else ""
    return f"{Path(file).name}:{number}: {message}" + (f"\n    {text}" if text else "")


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
        score = f"failed: {split_place(without_folders(attempt.error))[1]}"
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
