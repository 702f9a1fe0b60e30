"""The ranking as a table for the terminal."""

import math
from collections.abc import Sequence

from envcoder_bench.core.plain_text import visible
from envcoder_bench.core.words import aligned, decimal_places, fixed, join_some, shorten, wrap
from envcoder_bench.report.certainty import hacked, half_step, lost_seeds, nothing_learnt, ties, unseen, verdict
from envcoder_bench.results.metrics import METRICS, is_known
from envcoder_bench.results.pairs import Pairs
from envcoder_bench.results.ranking import Ranked, failed_of
from envcoder_bench.results.rows import SKIPPED
from envcoder_bench.results.statistics import half_width
from envcoder_bench.shaping.contract import Fault

GAP = "  "
MIN_NAME_WIDTH = 8
ALIKE = 0.8  # ratio of the halves of an interval that is written as one number
MOST_NAMED = 6  # parts of a list of candidates in a message on physics
REPORTED_SHARE = 0.01  # candidates are named if blow-ups ended more than this share of their training episodes
CONTACTS_HINT = "give the model more room for contacts (docs/add_a_task.md)"
BOLD, PLAIN = "\033[1m", "\033[0m"


def render_table(
    ranked: Sequence[Ranked],
    fitness_meaning: str,
    width: int = 100,
    bold: bool = False,
    max_rows: int = 100,
    notes: bool = True,
    tested: str = "",
    folder: str = "RUN",
    pairs: Pairs | None = None,
    best: bool = True,
) -> str:
    """Render the ranking, best first, followed by the errors of failed candidates.

    Args:
        width: greatest length of lines; only places (FILE:LINE) are never broken.
        bold: whether to print the best in bold, for a terminal.
        max_rows: after this many rows only baselines are shown.
        notes: whether to explain the numbers.
        tested: for which candidates p-values are corrected; by default their number.
        pairs: of which the first two rows are compared.
        best: whether to say which is the best, and how sure this is.
    """
    skipped = [r.candidate for r in ranked if r.status == SKIPPED]
    ranked = [r for r in ranked if r.status != SKIPPED]
    rows = [r for i, r in enumerate(ranked) if i < max_rows or r.baseline]
    every_failed = bool(ranked) and all(r.rank is None and r.faults for r in ranked)
    lines = [] if every_failed else _lines(rows, width)
    if len(rows) < len(ranked):
        lines.append(f"{len(ranked) - len(rows)} more in results.csv")
    sections = ["\n".join(lines)]
    if notes:
        warning = nothing_learnt(ranked, folder=folder)
        decided = verdict(ranked, pairs, folder) if best else [*hacked(ranked), *half_step(ranked)]
        texts = ("\n".join(wrap(line, width) for line in part) for part in (decided, _notes(ranked, tested)))
        sections = [wrap(f"fitness: {fitness_meaning}", width), *sections, wrap(warning, width), *texts]
    if skipped:
        text = f"skipped, because they define none of the functions asked for ({len(skipped)}): {', '.join(skipped)}"
        sections.append(wrap(text, width))
    text = visible("\n\n".join(s for s in [*sections, render_failures(ranked, width).rstrip()] if s) + "\n")
    if bold and lines and rows[0].rank is not None:
        text = text.replace(visible(lines[2]), f"{BOLD}{visible(lines[2])}{PLAIN}", 1)
    return text


def render_failures(ranked: Sequence[Ranked], width: int = 100) -> str:
    """Render the errors of failed candidates; an empty string if none failed."""
    failed = [r for r in ranked if r.faults]
    every = len(failed) == len(ranked) and all(r.rank is None for r in failed)
    shares = failed_of((r.name for r in failed), (r.name for r in ranked))
    title = "every candidate failed" if every else f"failed ({shares})"
    named = [(r.candidate if r.status == "failed" else f"{r.candidate} ({r.status})", r.faults) for r in failed]
    return "".join(f"{section}\n" for section in render_by_place(title, named, width))


def render_by_place(title: str, candidates: Sequence[tuple[str, Sequence[Fault]]], width: int) -> list[str]:
    """Return a section with each candidate's faults, their places on separate lines; empty without faults."""
    lines: list[str] = []
    for name, faults in candidates:
        lines += [f"  {shorten(name, width - 2)}"] if faults else []
        for fault in faults:
            indent = "      " if fault.place else "    "
            lines += [f"    {fault.place}"] if fault.place else []
            lines.append(wrap(fault.text, width, indent, indent))
    return ["\n".join([f"{title}:", *lines])] if lines else []


def _lines(shown: Sequence[Ranked], width: int) -> list[str]:
    """Return header, rule and a line for each row; names are shortened to stay within ``width``."""
    decimals = decimal_places([r.fitness for r in shown])
    names = [r.candidate + " (baseline)" * r.baseline for r in shown]
    fitness = numbers([(r.fitness, r.fitness_ci_low, r.fitness_ci_high) for r in shown], decimals)
    versus = numbers([(r.vs_human, r.vs_human_ci_low, r.vs_human_ci_high) for r in shown], decimals, sign="+")
    versus = [x + "!" if r.significant else x for x, r in zip(versus, shown)]
    columns = [
        ["#", *("-" if r.rank is None else str(r.rank) for r in shown)],
        ["candidate", *names],
        ["fitness", *fitness],
        ["vs human", *versus],
        ["new seeds", *("" if math.isnan(r.expected) else fixed(r.expected, decimals) for r in shown)],
        ["steps to tie", *("" if math.isnan(r.steps_to_tie) else f"{r.steps_to_tie:,.0f}" for r in shown)],
        *([metric.short, *_metric_cells(name, shown)] for name, metric in METRICS.items() if metric.short),
        ["status", *(r.status for r in shown)],
    ]
    columns = [c for c in columns if c[0] in ("#", "candidate", "status") or any(c[1:])]
    numeric = {"#", "new seeds", "steps to tie", *(metric.short for metric in METRICS.values())}
    right = [k for k, column in enumerate(columns) if column[0] in numeric]
    if sum(max(map(len, c)) + len(GAP) for c in columns) - len(GAP) > width:  # the page and summary.json have it
        columns = [c for c in columns if c[0] != "new seeds"]
        right = [k for k, column in enumerate(columns) if column[0] in numeric]
    others = sum(max(map(len, c)) + len(GAP) for c in columns if c[0] != "candidate")
    room = max(MIN_NAME_WIDTH, width - others)
    columns[1] = [shorten(x, room) for x in columns[1]]
    return aligned([*zip(*columns)], right)


def _metric_cells(name: str, shown: Sequence[Ranked]) -> list[str]:
    values = [getattr(row, name) for row in shown]
    return [METRICS[name].text(x) if is_known(x) else "" for x in values]


def _notes(shown: Sequence[Ranked], corrected: str = "") -> list[str]:
    """Return notes on the intervals, the columns, and problems of the physics, of all candidates."""
    notes = []
    # intervals
    over = {r.interval_over for r in shown}
    counts = sorted({len(r.seeds) for r in shown if r.interval_over == "seeds"})
    if "seeds" in over:
        number = " to ".join(map(str, counts[:1] + counts[1:][-1:]))
        noun = "seed" if counts == [1] else "seeds"
        notes.append(f"± or [ ]: 95 % interval over {number} {noun}, their spread pooled over the candidates")
    elif "episodes" in over:
        notes.append("±: 95 % interval over the episodes of one seed")
    if any(not math.isnan(r.vs_human) for r in shown):
        notes.append("vs human: difference to the human baseline, paired by seed")
    # marks
    tested = sum(not math.isnan(r.vs_human_p) for r in shown)
    if any(r.significant for r in shown):
        of = f", corrected for {corrected or f'{tested} candidates'} by Holm's method" if tested > 1 else ""
        notes.append(f"!: it differs from 0 (moderated t-test, 5 %{of})")
    notes += [*unseen(shown), *ties(shown), *lost_seeds(shown)]
    # columns
    columns = {name: metric for name, metric in METRICS.items() if metric.short}
    notes += [metric.note for name, metric in columns.items() if metric.note and any(_metric_cells(name, shown))]
    if any(r.stopped_at for r in shown):
        notes.append(
            "stopped at: the iteration at which the race stopped it; fitness and steps are of its policy then, and it"
            " ranks below all that went on (reasons: results.csv)"
        )
    # what makes results doubtful: the physics
    unstable = sorted((r for r in shown if r.unstable_share > REPORTED_SHARE), key=lambda r: -r.unstable_share)
    if unstable:
        worst = join_some([f"{r.candidate} {100 * r.unstable_share:.0f} %" for r in unstable], MOST_NAMED)
        notes.append(f"training episodes that ended because the physics blew up: {worst}")
    overflowed = sorted((r for r in shown if r.contact_overflows), key=lambda r: -r.contact_overflows)
    if overflowed:
        worst = join_some([f"{r.candidate} {r.contact_overflows}" for r in overflowed], MOST_NAMED)
        notes.append(f"env-steps in which contacts were dropped: {worst}; do not trust their results, {CONTACTS_HINT}")
    return notes


def numbers(values: Sequence[tuple[float, float, float]], decimals: int, sign: str = "") -> list[str]:
    """Format (mean, low, high) as aligned ``mean ± half width``, the longer one; NaN as an empty string.

    An interval of unlike halves, such as one that is cut by the bounds of the fitness, is ``mean [low, high]``.
    """
    means = ["" if math.isnan(v[0]) else fixed(v[0], decimals, sign) for v in values]
    ends = ["" if math.isnan(half_width(*v)) else _ends(*v, decimals, sign) for v in values]
    left, right = max(map(len, means), default=0), max((len(end) for end in ends if end[:1] != "["), default=0)
    texts = [f" {end}" if end[:1] == "[" else f" ± {end.rjust(right)}" if end else "" for end in ends]
    return [m.rjust(left) + text if m else "" for m, text in zip(means, texts)]


def _ends(mean: float, low: float, high: float, decimals: int, sign: str) -> str:
    shorter, longer = sorted((high - mean, mean - low))
    if shorter >= ALIKE * longer or longer - shorter < 0.5 * 10**-decimals:
        return fixed(longer, decimals)
    return f"[{fixed(low, decimals, sign)}, {fixed(high, decimals, sign)}]"
