"""What a race did: the share of the training that it saved, and a picture of who was alive when."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envcoder_bench.report.figures import (
    BETTER,
    BLACK,
    DARK,
    GREY,
    LIGHT,
    NAME_WIDTH,
    WORSE,
    escape,
    new_figure,
    save_figure,
)
from envcoder_bench.report.ranking import Ranked
from envcoder_bench.report.results import FAILED, Result
from envcoder_bench.report.table import shorten
from envcoder_bench.tasks.base import BASELINES

NAMED_ROWS = 70  # with more candidates only those that were never stopped have a name
MOST_HEIGHT = 18.0  # inches


def race_summary(rows: Sequence[Result], rungs: Sequence[int], iterations: int) -> dict[str, Any]:
    """Return the race of a complete run for summary.json.

    ``alive`` are the candidates in training before the first rung and after each; ``env_steps_share`` is the share of
    the env-steps of all candidates and baselines that a run without a race would have trained on.
    """
    began = {row.candidate: row.stopped_at for row in rows if row.env_steps and row.candidate not in BASELINES}
    alive = [sum(not at or at > rung for at in began.values()) for rung in (0, *rungs)]
    whole = max((row.env_steps for row in rows), default=0)
    trained = [row for row in rows if row.env_steps and row.status != FAILED]
    share = sum(row.env_steps for row in trained) / (whole * len(trained)) if whole else 1.0
    return {
        "rungs": list(rungs),
        "iterations": iterations,
        "alive": alive,
        "env_steps_share": round(share, 4),
    }


def plot_race(
    rows: Sequence[Result],
    ranked: Sequence[Ranked],
    path: str | Path,
    task: str,
    rungs: Sequence[int],
    iterations: int,
    alive: Sequence[int],
    env_steps_share: float,
) -> Path:
    """Draw a bar for each candidate, best on top, up to the iteration at which it was stopped or failed."""
    per_iteration = max((row.env_steps for row in rows), default=1) / iterations
    ends: dict[str, float] = {}
    for row in rows:
        if row.env_steps:
            ends[row.candidate] = max(ends.get(row.candidate, 0.0), row.env_steps / per_iteration)
    shown = [r for r in ranked if r.candidate in ends]
    height = 1.9 + max(4, min(0.22 * len(shown), MOST_HEIGHT - 1.9))
    title = f"{env_steps_share:.0%} of the env-steps of a run without a race"
    figure, (axes,), top = new_figure(10.0, height, f"{task}: race", title)
    labels = []
    for y, row in enumerate(shown):
        failed = row.rank is None
        colour = WORSE if failed else LIGHT if row.stopped_at else DARK if row.baseline else BETTER
        axes.barh(y, ends[row.candidate], height=0.72, color=colour, linewidth=0, zorder=2)
        if len(shown) <= NAMED_ROWS or not (row.stopped_at or failed):
            labels.append((y, shorten(row.candidate, NAME_WIDTH) + (" (baseline)" if row.baseline else "")))
    for rung in rungs:
        axes.axvline(rung, color=BLACK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=3)
    begin = 0
    for end, count in zip((*rungs, iterations), alive):
        axes.text((begin + end) / 2, -0.9, f"{count} alive", ha="center", va="bottom", fontsize=9, color=GREY)
        begin = end
    axes.set_yticks([y for y, _ in labels], [escape(name) for _, name in labels], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(shown) - 0.4, -2.2)
    axes.set_xlim(0, iterations)
    axes.set_xlabel("iteration (dashed: rungs)")
    figure.subplots_adjust(left=0.3, right=0.97, bottom=0.85 / height, top=top)
    caption = "blue: trained to the end   light grey: stopped   dark grey: baselines   orange: failed"
    figure.text(0.02, 0.14 / height, caption, fontsize=9, color=GREY, va="bottom")
    return save_figure(figure, path)
