"""The picture of a search: the fitness of each round's candidates, with the baselines as lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

from envcoder_bench.report.html import visible
from envcoder_bench.report.plots import (
    BLACK,
    COLOURS,
    GREY,
    NAME_WIDTH,
    new_figure,
    plain,
    save_figure,
    say,
    spread,
)
from envcoder_bench.report.table import decimal_places, shorten
from envcoder_bench.tasks.base import HUMAN

if TYPE_CHECKING:
    from envcoder_bench.search.records import Archive, Attempt

ROUNDS_WITH_FAILED = 12  # at most, so that the words do not meet
SPAN = 0.56  # of a round's width for its candidates
DOT, BEST = COLOURS[5], COLOURS[0]


def plot_search(archive: Archive, path: str | Path, task: str, fitness_meaning: str) -> Path:
    """Draw a dot for each candidate by its round, the best so far as a line, and how many failed."""
    rounds = max((attempt.round for attempt in archive.attempts), default=0)
    figure, axes, top = new_figure(
        10.0, 5.4, visible(f"{task}: search" if task else "search"), visible(fitness_meaning)
    )
    baselines = [b for b in archive.baselines.values() if b.fitness is not None]
    values = [a.fitness for a in [*archive.attempts, *baselines] if a.fitness is not None]
    figure.subplots_adjust(left=0.075, right=0.8, bottom=0.15, top=top)
    if not rounds:
        say(axes, "no round is done yet")
        return save_figure(figure, path)
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.06 * max(high - low, 0.1 * abs(high), 1e-3)
    axes.set_ylim(0.0 if 0 <= low < high / 2 else low - margin, high + margin)
    axes.set_xlim(0.5, rounds + 0.5)
    labels: list[tuple[float, str, str, bool]] = []
    for baseline in baselines:
        assert baseline.fitness is not None
        human = baseline.name == HUMAN
        dashes: Any = "-" if human else (0, (4, 3))
        axes.axhline(baseline.fitness, color=BLACK if human else GREY, linewidth=1.4, linestyle=dashes, zorder=2)
        labels.append((baseline.fitness, baseline.name, BLACK if human else GREY, human))
    for number in range(1, rounds + 1):
        _draw_round(axes, number, archive.of_round(number))
    best = archive.best()
    if best is not None and best.fitness is not None:
        labels.append((best.fitness, best.name, BEST, True))
        steps = [_best_until(archive, number) for number in range(1, rounds + 1)]
        known = [(number, y) for number, y in enumerate(steps, 1) if y is not None]
        xs = [x for number, _ in known for x in (number - 0.5, number + 0.5)]
        axes.plot(xs, [y for _, y in known for _ in range(2)], color=BEST, linewidth=2.0, zorder=3)
    if not values:
        axes.text(0.5, 0.5, "nothing has a fitness", transform=axes.transAxes, ha="center", color=GREY)
    _mark_rounds(axes, archive, rounds)
    axes.set_xlabel("round")
    axes.set_ylabel("fitness")
    axes.grid(axis="y", color="#E8E8E8", linewidth=0.8)
    _label(axes, labels)
    figure.text(0.98, 0.025, "dots: candidates   blue line: the best so far", fontsize=9, color=GREY, ha="right")
    return save_figure(figure, path)


def _draw_round(axes: Any, number: int, attempts: Sequence[Attempt]) -> None:
    step = SPAN / max(len(attempts) - 1, 1)
    left = number - SPAN / 2 if len(attempts) > 1 else number
    dots = [(left + step * k, a.fitness) for k, a in enumerate(attempts) if a.fitness is not None]
    axes.plot([x for x, _ in dots], [y for _, y in dots], "o", color=DOT, markersize=5, markeredgewidth=0, zorder=4)


def _best_until(archive: Archive, number: int) -> float | None:
    """The fitness of the best of the rounds up to one, as it is known now."""
    best = replace(archive, attempts=[a for a in archive.attempts if a.round <= number]).best()
    return None if best is None else best.fitness


def _mark_rounds(axes: Any, archive: Archive, rounds: int) -> None:
    """The rounds' numbers, and below them how many candidates failed where there is room for that."""
    step = max(1, -(-rounds // 15))
    ticks = [*range(1, rounds + 1, step)]
    failed = [sum(a.fitness is None for a in archive.of_round(number)) for number in ticks]
    below = [f"\n{count} failed" if count and rounds <= ROUNDS_WITH_FAILED else "" for count in failed]
    axes.set_xticks(ticks, [f"{number}{words}" for number, words in zip(ticks, below)])


def _label(axes: Any, labels: Sequence[tuple[float, str, str, bool]]) -> None:
    """Names and values right of the axes, as near to their lines as they let each other: (y, name, colour, bold)."""
    labels = sorted(labels)
    low, high = axes.get_ylim()
    inches = axes.get_window_extent().height / axes.figure.dpi
    heights = spread([(y - low) / (high - low) for y, *_ in labels], 0.2 / inches, 1.0)
    decimals = decimal_places([y for y, *_ in labels])
    for (y, name, colour, bold), height in zip(labels, heights):
        words = plain(f"{shorten(visible(name), NAME_WIDTH - 8)}  {y:.{decimals}f}")
        style: Any = {"color": colour, "fontweight": "bold" if bold else "normal", "fontsize": 10}
        axes.text(1.012, height, words, transform=axes.transAxes, va="center", **style)
