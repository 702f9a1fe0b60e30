"""The plot of a search: fitness by round, and the candidates' differences to the baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcoder_bench.core.plain_text import visible
from envcoder_bench.core.words import decimal_places, fixed, shorten
from envcoder_bench.report.figures import (
    BLACK,
    COLOURS,
    GREY,
    NAME_WIDTH,
    escape,
    make_room_left,
    new_figure,
    save_figure,
    show_message,
    spread,
)
from envcoder_bench.tasks.base import HUMAN, UNTRAINED

if TYPE_CHECKING:
    from envcoder_bench.search.archive import Archive, Attempt

    Value = Callable[[Attempt, int], float | None]  # value of an attempt or baseline in a round

ROUNDS_WITH_FAILED = 12  # the numbers of failed candidates of more rounds would overlap
SPAN = 0.56  # share of a round's width for its candidates
DOT, BEST = COLOURS[5], COLOURS[0]
WIDTH, HEIGHTS = 10.0, {1: 5.4, 2: 8.2}  # inches, by the number of panels
LEFT, RIGHT, BOTTOM, GAP = 0.075, 0.8, 0.8, 0.3  # margins of the panels: fractions of the width, and inches


def plot_search(archive: Archive, path: str | Path, task: str, fitness_meaning: str) -> Path:
    """Draw candidates as dots by round, the baselines in each round, and the best so far as a line.

    If the baseline has a fitness, a second panel shows the expected differences, by which candidates are ranked.
    """
    rounds = max((attempt.round for attempt in archive.attempts), default=0)
    merits = archive.merits()

    def fitness(attempt: Attempt, number: int) -> float | None:
        level = archive.in_round(attempt, number)
        return level if attempt.by_seed else attempt.fitness

    def above(attempt: Attempt, number: int) -> float | None:
        return merits.score(attempt.name) if attempt.name in merits.names else None  # over all of its seeds

    panels: list[tuple[str, Value]] = [("fitness", fitness)]
    if merits.reference is not None:
        panels.append((f"expected above {archive.reference}", above))
    height = HEIGHTS[len(panels)]
    title = visible(f"{task}: search" if task else "search")
    figure, every, top = new_figure(WIDTH, height, title, f"fitness: {visible(fitness_meaning)}", len(panels))
    gap = GAP * len(panels) / (height * top - BOTTOM - GAP * (len(panels) - 1))  # share of a panel's height
    figure.subplots_adjust(left=LEFT, right=RIGHT, bottom=BOTTOM / height, top=top, hspace=gap)
    if not rounds:
        show_message(every[0], "no round is finished yet")
        return save_figure(figure, path)
    for axes, (label, value) in zip(every, panels):
        last = axes is every[-1]
        _draw(axes, archive, rounds, value, last)
        axes.set_ylabel(label)
        _mark_rounds(axes, archive, rounds, last)
    every[-1].set_xlabel("round")
    make_room_left(figure, every)
    words = "dots: candidates   ring: the best   blue line: the best so far"
    figure.text(0.98, 0.13 / height, words, fontsize=9, color=GREY, ha="right")
    return save_figure(figure, path)


def _draw(axes: Any, archive: Archive, rounds: int, value: Value, with_best: bool) -> None:
    """Draw one panel: baselines, candidates, and the best so far of each round."""
    numbers = range(1, rounds + 1)
    labels: list[tuple[float, str, str, bool]] = []
    values: list[float] = []
    best = archive.best()
    for baseline in archive.references:
        human = baseline.name == HUMAN
        dashes = "-" if human else (0, (1, 1.5)) if baseline.name == UNTRAINED else (0, (4, 3))
        style: dict[str, Any] = {"color": BLACK if human else GREY, "linestyle": dashes}
        heights = _steps(axes, [(k, value(baseline, k)) for k in numbers], linewidth=1.4, zorder=2, **style)
        labels += [(y, baseline.name, style["color"], human) for y in heights[-1:]]
        values += heights
    for number in numbers:
        values += _dots(axes, number, archive.of_round(number), value, best)
    if with_best and best is not None:
        # the best as it was known after each round, with its fitness in its own round
        until = [(k, archive.until(k).best()) for k in numbers]
        line = [(k, None if a is None else value(a, a.round)) for k, a in until]
        labels += [(y, best.name, BEST, True) for y in _steps(axes, line, color=BEST, linewidth=2.0, zorder=3)[-1:]]
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.06 * (max(high - low, 0.1 * abs(high)) or 1e-3)
    # axes begin at 0 where this wastes less than half of the panel
    axes.set_ylim(0.0 if 0 < low < high / 2 else low - margin, high + margin)
    axes.set_xlim(0.5, rounds + 0.5)
    if not values:
        axes.text(0.5, 0.5, "nothing has a fitness", transform=axes.transAxes, ha="center", color=GREY)
    axes.grid(axis="y", color="#E8E8E8", linewidth=0.8)
    _label(axes, labels)


def _steps(axes: Any, points: Sequence[tuple[int, float | None]], **style: Any) -> list[float]:
    """Draw a line that is constant within each round; return its heights."""
    drawn = [(number, y) for number, y in points if y is not None]
    xs = [x for number, _ in drawn for x in (number - 0.5, number + 0.5)]
    axes.plot(xs, [y for _, y in drawn for _ in range(2)], **style)
    return [y for _, y in drawn]


def _dots(axes: Any, number: int, attempts: Sequence[Attempt], value: Value, best: Attempt | None) -> list[float]:
    """Draw the candidates of a round side by side, with a ring around the best of the search; return their heights."""
    step = SPAN / max(len(attempts) - 1, 1)
    left = number - SPAN / 2 if len(attempts) > 1 else number
    drawn = [(a, left + step * k, value(a, number)) for k, a in enumerate(attempts) if a.fitness is not None]
    dots = [(x, y) for _, x, y in drawn if y is not None]
    ring = [(x, y) for a, x, y in drawn if y is not None and best is not None and a.name == best.name]
    axes.plot([x for x, _ in dots], [y for _, y in dots], "o", color=DOT, markersize=5, markeredgewidth=0, zorder=4)
    look: dict[str, Any] = {"color": BEST, "markersize": 9, "markerfacecolor": "none", "markeredgewidth": 1.6}
    axes.plot([x for x, _ in ring], [y for _, y in ring], "o", zorder=5, **look)
    return [y for _, y in dots]


def _mark_rounds(axes: Any, archive: Archive, rounds: int, words: bool) -> None:
    """Label the rounds, with the number of failed candidates if there is room."""
    step = max(1, -(-rounds // 15))
    ticks = [*range(1, rounds + 1, step)]
    failed = [sum(a.fitness is None for a in archive.of_round(number)) for number in ticks]
    below = [f"\n{count} failed" if count and rounds <= ROUNDS_WITH_FAILED else "" for count in failed]
    axes.set_xticks(ticks, [f"{number}{text}" if words else "" for number, text in zip(ticks, below)])


def _label(axes: Any, labels: Sequence[tuple[float, str, str, bool]]) -> None:
    """Write names and values right of the axes, near their lines; ``labels`` are (y, name, colour, bold)."""
    labels = sorted(labels)
    low, high = axes.get_ylim()
    inches = axes.get_window_extent().height / axes.figure.dpi
    heights = spread([(y - low) / (high - low) for y, *_ in labels], 0.2 / inches, 1.0)
    decimals = decimal_places([y for y, *_ in labels])
    for (y, name, colour, bold), height in zip(labels, heights):
        words = escape(f"{shorten(visible(name), NAME_WIDTH - 8)}  {fixed(y, decimals)}")
        style: Any = {"color": colour, "fontweight": "bold" if bold else "normal", "fontsize": 10}
        axes.text(1.012, height, words, transform=axes.transAxes, va="center", **style)
