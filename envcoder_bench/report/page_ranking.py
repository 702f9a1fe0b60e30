"""The ranking on the page of a run: a table that can be sorted and filtered, with a picture of each interval."""

from __future__ import annotations

import math
from typing import Mapping, Sequence

from envcoder_bench.report.html import text
from envcoder_bench.report.page_data import colours
from envcoder_bench.report.ranking import Ranked
from envcoder_bench.report.results import OK
from envcoder_bench.report.table import chances, decimal_places, fixed

COLUMNS = (  # title, kind, the order of the first click
    ("#", "number", "ascending"),
    ("candidate", "text", "ascending"),
    ("fitness", "number", "descending"),
    ("95 % interval", "", ""),
    ("vs human", "number", "descending"),
    ("best", "number", "descending"),
    ("episode, steps", "number", "descending"),
    ("shaped return", "number", "descending"),
    ("env-steps", "number", "descending"),
    ("status", "text", "ascending"),
)


def render_ranking(ranked: Sequence[Ranked], anchors: Mapping[str, str]) -> str:
    """Return the ranking as HTML, without its title.

    Args:
        anchors: the HTML id of each candidate's section, by its name.
    """
    colour_of, decimals = colours(ranked), fitness_decimals(ranked)
    heads = []
    for k, (title, kind, first) in enumerate(COLUMNS):
        if not kind:
            heads.append(f"<th>{text(title)}</th>")
            continue
        sort = ' aria-sort="ascending"' if k == 0 else ""
        number = ' class="number"' if kind == "number" else ""
        button = f'<button type="button">{text(title)}</button>'
        heads.append(f'<th scope="col" data-kind="{kind}" data-first="{first}"{sort}{number}>{button}</th>')
    axis = _Axis(ranked)
    rows = [_row(row, anchors[row.candidate], colour_of[row.candidate], decimals, axis) for row in ranked]
    dashed = ", the dashed line the human baseline" if axis.human is not None else ""
    notes = [f"The line of a fitness is its 95 % interval{dashed}."]
    over = {row.interval_over for row in ranked}
    notes += ["Intervals are over seeds."] if "seeds" in over else []
    notes += ["Intervals of one seed are over its episodes."] if "episodes" in over else []
    notes += ["vs human: mean difference to the human baseline with the same seeds."]
    if any(row.significant for row in ranked):
        notes += ["It is coloured where it differs from 0 (paired t-test, 5 %, corrected by Holm's method)."]
    notes += ["best: probability that it is the best (bootstrap over seeds and episodes)."] if chances(ranked) else []
    return (
        '<div class="bar"><input type="search" id="filter" placeholder="Filter by name, status or error" '
        'aria-label="Filter the ranking"><label class="check"><input type="checkbox" id="without-failed">without'
        ' failed</label><span id="shown" class="note"></span></div>'
        f'<div class="wide"><table id="ranking"><thead><tr>{"".join(heads)}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><p class="note">{text(" ".join(notes))}</p>'
    )


def _row(row: Ranked, anchor: str, colour: str, decimals: int, axis: _Axis) -> str:
    def number(value: float | None, shown: str) -> str:
        known = value is not None and math.isfinite(value)
        return f'<td class="number" data-v="{value if known else ""}">{shown if known else ""}</td>'

    ranked = row.rank is not None
    difference = fixed(row.vs_human, decimals) if math.isfinite(row.vs_human) else ""
    sign = "" if not row.significant else "better" if row.vs_human > 0 else "worse"
    plus = "+" if difference and not difference.startswith("-") else ""
    versus = f'<span class="{sign}">{plus}{difference}</span>'
    tag = ' <span class="tag">baseline</span>' if row.baseline else ""
    kind = "ok" if row.status == OK else "failed" if row.errors else ""
    failed = 1 if row.errors else 0
    every = " ".join([row.candidate, row.status, *row.errors])
    return (
        f'<tr class="{"baseline" if row.baseline else "own"}" data-failed="{failed}" data-text="{text(every)}">'
        + number(row.rank, str(row.rank))
        + f'<td class="name" data-v="{text(row.candidate)}"><span class="dot" style="background:{colour}"></span>'
        f'<a href="#{anchor}">{text(row.candidate)}</a>{tag}</td>'
        + number(row.fitness, fixed(row.fitness, decimals) if ranked else "")
        + f"<td>{axis.interval(row, colour) if ranked else ''}</td>"
        + number(row.vs_human, versus)
        + number(row.p_best, f"{row.p_best:.0%}" if row.p_best == row.p_best else "")
        + number(row.episode_length, f"{row.episode_length:.0f}")
        + number(row.shaped_return, f"{row.shaped_return:.4g}")
        + number(row.env_steps or None, f"{row.env_steps:,}")
        + f'<td data-v="{text(row.status)}"><span class="tag {kind}">{text(row.status)}</span></td></tr>'
    )


class _Axis:
    """The common scale of the intervals, 0 to 200 pixels."""

    WIDTH, HEIGHT = 200, 18

    def __init__(self, ranked: Sequence[Ranked]) -> None:
        known = [row for row in ranked if row.rank is not None]
        means = [row.fitness for row in known]
        ends = [x for row in known for x in (row.fitness_ci_low, row.fitness_ci_high) if x == x]
        low, high = (min(means), max(means)) if means else (0.0, 1.0)
        # a wide interval of a bad candidate does not squeeze the rest
        reach = 0.75 * max(high - low, 1e-9 + 0.05 * abs(high))
        self.least = max(min([low, *ends]), low - reach)
        self.most = min(max([high, *ends]), high + reach)
        self.human = next((row.fitness for row in known if row.candidate == "human"), None)

    def _place(self, x: float) -> float:
        span = (self.most - self.least) or 1.0
        share = (x - self.least) / span
        return round(4 + (self.WIDTH - 8) * min(max(share, 0.0), 1.0), 1)

    def interval(self, row: Ranked, colour: str) -> str:
        """Return the picture of an interval."""
        middle = self.HEIGHT / 2
        parts = []
        if self.human is not None:
            x = self._place(self.human)
            parts.append(f'<path d="M{x} 0V{self.HEIGHT}" stroke="#8a94a2" stroke-dasharray="3 2"/>')
        if row.fitness_ci_low == row.fitness_ci_low:
            left, right = self._place(row.fitness_ci_low), self._place(row.fitness_ci_high)
            parts.append(f'<path d="M{left} {middle}H{right}" stroke="{colour}" stroke-width="3" opacity=".45"/>')
        parts.append(f'<circle cx="{self._place(row.fitness)}" cy="{middle}" r="4" fill="{colour}"/>')
        title = f"{row.fitness:.5g}"
        if row.fitness_ci_low == row.fitness_ci_low:
            title += f", {row.fitness_ci_low:.5g} to {row.fitness_ci_high:.5g}"
        box = f'viewBox="0 0 {self.WIDTH} {self.HEIGHT}"'
        return (
            f'<svg class="interval" {box} role="img" aria-label="{title}"><title>{title}</title>{"".join(parts)}</svg>'
        )


def fitness_decimals(ranked: Sequence[Ranked]) -> int:
    """Return the number of decimal places in which the fitness is shown."""
    return decimal_places([row.fitness for row in ranked if row.rank is not None])
