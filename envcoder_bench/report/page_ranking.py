"""The ranking on the page of a run: a table that can be sorted and filtered, with a picture of each interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from envcoder_bench.report.certainty import first_place, lost_seeds, one_seed, ties
from envcoder_bench.report.html import text
from envcoder_bench.report.page_data import colours
from envcoder_bench.report.ranking import Ranked, decimal_places
from envcoder_bench.report.results import OK
from envcoder_bench.report.words import fixed

EMPTY = '<td class="number" data-v=""></td>'
COLUMNS = (  # title, kind, the order of the first click
    ("#", "number", "ascending"),
    ("candidate", "text", "ascending"),
    ("score", "number", "descending"),
    ("fitness", "number", "descending"),
    ("95 % interval", "", ""),
    ("vs human", "number", "descending"),
    ("best", "number", "descending"),
    ("steps to tie", "number", "ascending"),
    ("episode, steps", "number", "descending"),
    ("shaped return", "number", "descending"),
    ("env-steps", "number", "descending"),
    ("status", "text", "ascending"),
)


def render_ranking(
    ranked: Sequence[Ranked], anchors: Mapping[str, str], scores: Mapping[str, float] | None = None, folder: str = "RUN"
) -> str:
    """Return the ranking as HTML, without its title and without columns that are empty.

    Args:
        anchors: the HTML id of each candidate's section, by its name.
        scores: by which a search ranks its candidates, by name.
        folder: the run's folder, for the command that adds seeds.
    """
    colour_of, decimals = colours(ranked), fitness_decimals(ranked)
    axis = _Axis(ranked)
    rows = [
        _cells(row, anchors[row.candidate], colour_of[row.candidate], decimals, axis, (scores or {}).get(row.candidate))
        for row in ranked
    ]
    used = [k for k in range(len(COLUMNS)) if any(cells[k] not in ("", EMPTY) for cells in rows)]
    heads = []
    for k in used:
        title, kind, first = COLUMNS[k]
        if not kind:
            heads.append(f"<th>{text(title)}</th>")
            continue
        sort = ' aria-sort="ascending"' if k == 0 else ""
        number = ' class="number"' if kind == "number" else ""
        button = f'<button type="button">{text(title)}</button>'
        heads.append(f'<th scope="col" data-kind="{kind}" data-first="{first}"{sort}{number}>{button}</th>')
    body = [_row(row, "".join(cells[k] or "<td></td>" for k in used)) for row, cells in zip(ranked, rows)]
    notes = " ".join(
        f"{note[0].upper()}{note[1:]}." for note in _notes(ranked, axis.human is not None, bool(scores), folder)
    )
    return (
        '<div class="bar"><input type="search" id="filter" placeholder="Filter by name, status or error" '
        'aria-label="Filter the ranking"><label class="check"><input type="checkbox" id="without-failed">without'
        ' failed</label><span id="shown" class="note"></span></div>'
        f'<div class="wide"><table id="ranking"><thead><tr>{"".join(heads)}</tr></thead>'
        f'<tbody>{"".join(body)}</tbody></table></div><p class="note">{text(notes)}</p>'
    )


def _notes(ranked: Sequence[Ranked], human: bool, scores: bool, folder: str) -> list[str]:
    """Return what the columns mean, and how sure the ranking is."""
    over = {row.interval_over for row in ranked}
    of = "seeds, their spread pooled over the candidates" if "seeds" in over else "the episodes of one seed"
    notes = [f"the line of a fitness is its 95 % interval over {of}"] if over - {""} else []
    notes += ["the dashed line is the human baseline"] if human else []
    if scores:
        notes += [
            "score, by which a search ranks: the mean difference to the baseline, without the effects of seeds on that"
            " baseline, and with the median candidate as one more seed, so that one good seed is not enough"
        ]
    if any(math.isfinite(row.vs_human) for row in ranked):
        notes += ["vs human: mean difference to the human baseline with the same seeds"]
    if any(row.significant for row in ranked):
        notes += ["it is coloured where it differs from 0 (paired t-test, 5 %, corrected by Holm's method)"]
    if any(math.isfinite(row.p_best) for row in ranked):
        notes += ["best: probability that it is the best"]
    return notes + first_place(ranked) + one_seed(ranked, folder) + ties(ranked) + lost_seeds(ranked)


def _row(row: Ranked, cells: str) -> str:
    failed = 1 if row.errors else 0
    every = " ".join([row.candidate, row.status, *row.errors])
    kind = "baseline" if row.baseline else "own"
    return f'<tr class="{kind}" data-failed="{failed}" data-text="{text(every)}">{cells}</tr>'


def _cells(row: Ranked, anchor: str, colour: str, decimals: int, axis: _Axis, score: float | None) -> list[str]:
    """Return the cells of a row in the order of COLUMNS; EMPTY or an empty text where nothing is known."""

    def number(value: float | None, shown: str) -> str:
        return f'<td class="number" data-v="{value}">{shown}</td>' if value is not None and value == value else EMPTY

    ranked = row.rank is not None
    difference = fixed(row.vs_human, decimals, "+") if math.isfinite(row.vs_human) else ""
    sign = "" if not row.significant else "better" if row.vs_human > 0 else "worse"
    tag = ' <span class="tag">baseline</span>' if row.baseline else ""
    kind = "ok" if row.status == OK else "failed" if row.errors else ""
    return [
        number(row.rank, str(row.rank)),
        f'<td class="name" data-v="{text(row.candidate)}"><span class="dot" style="background:{colour}"></span>'
        f'<a href="#{anchor}">{text(row.candidate)}</a>{tag}</td>',
        number(score, "" if score is None else fixed(score, decimals)),
        number(row.fitness if ranked else None, fixed(row.fitness, decimals) if ranked else ""),
        f"<td>{axis.interval(row, colour)}</td>" if ranked and row.fitness_ci_low == row.fitness_ci_low else "",
        number(row.vs_human, f'<span class="{sign}">{difference}</span>'),
        number(row.p_best, f"{row.p_best:.0%}"),
        number(row.steps_to_tie, f"{row.steps_to_tie:,.0f}"),
        number(row.episode_length, f"{row.episode_length:.0f}"),
        number(row.shaped_return, f"{row.shaped_return:.4g}"),
        number(row.env_steps or None, f"{row.env_steps:,}"),
        f'<td data-v="{text(row.status)}"><span class="tag {kind}">{text(row.status)}</span></td>',
    ]


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
