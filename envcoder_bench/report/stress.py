"""The stress of a run's candidates as tables and sentences, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from envcoder_bench.core.words import aligned, counted, join_words, number, shorten, wrap
from envcoder_bench.results.statistics import mean_or_nan
from envcoder_bench.results.stress import DECILE, MOTION, Stress, Summary

NAME_WIDTH = 20


def render_stress(
    stress: Stress, fitness_order: Sequence[str], failed: Mapping[str, str], by_stress: bool, width: int
) -> str:
    """Render the candidates, by fitness or by their worst decile, with what the numbers mean."""
    rows = ordered(stress, fitness_order, by_stress)
    settings = stress.settings
    order = "the worst decile" if by_stress else "fitness"
    title = f"{counted(settings.draws, 'draw')} of {counted(settings.episodes, 'episode')}, ranked by {order}"
    sections = ["\n".join([f"stress grid {settings.version}: {title}", *aligned(stress_rows(rows), range(1, 6))])]
    columns = [name for name in MOTION if any(name in row.motion for row in rows)]
    if columns:
        sections.append("\n".join(["motion under stress", *aligned(motion_rows(rows), range(1, len(columns) + 1))]))
    if stress.commands:
        sections.append("\n".join(["commands of velocity", *aligned(command_rows(stress, rows), range(2, 7))]))
    if any(row.physics for row in stress.rows):
        cells = physics_rows(stress, rows)
        sections.append("\n".join(["fitness in other physics", *aligned(cells, range(1, len(cells[0])))]))
    touched = [f"{row.candidate}: {join_words(row.new_contacts)}" for row in rows if row.new_contacts]
    if touched:
        sections.append(
            "\n".join(["bodies that touch something under stress alone", *(wrap(x, width) for x in touched)])
        )
    sections += [wrap(text, width) for text in sentences(stress, fitness_order)]
    sections.append("\n".join(wrap(x, width) for x in missing(stress, failed)))
    return "\n\n".join(filter(None, sections)) + "\n"


def ordered(stress: Stress, fitness_order: Sequence[str], by_stress: bool) -> list[Summary]:
    """Return the candidates by their worst decile, or by fitness; those without a rank last."""
    places = {name: k for k, name in enumerate(fitness_order)}
    if by_stress:
        return stress.summaries
    return sorted(stress.summaries, key=lambda row: places.get(row.candidate, len(places)))


def sentences(stress: Stress, fitness_order: Sequence[str]) -> list[str]:
    """Return what the table does not say."""
    passing = [row.candidate for row in stress.summaries if row.passes]
    says = f"{join_words(passing)} pass{'es' * (len(passing) == 1)} in simulation" if passing else ""
    rule = "nine of ten episodes reach their end, also in the worst decile of the draws"
    return [x for x in (stress.disagreement(fitness_order), f"{says}: {rule}" if says else "") if x]


def missing(stress: Stress, failed: Mapping[str, str]) -> list[str]:
    """Return a line for each reason of absent columns, each note, and each candidate without policies."""
    settings = stress.settings
    by_reason: dict[str, list[str]] = {}
    for name, reason in settings.absent.items():
        by_reason.setdefault(reason, []).append(name)
    absent = [f"not measured: {join_words(names)}, because {reason}" for reason, names in by_reason.items()]
    observed = [
        f"{name} observes what a robot does not measure: {join_words(things)}"
        for name, things in settings.unmeasured.items()
        if things
    ]
    return [*absent, *settings.notes, *observed, *(f"{name}: {reason}" for name, reason in failed.items())]


def stress_rows(rows: Sequence[Summary]) -> list[list[str]]:
    """Return the header and a row for each candidate."""
    head = ["candidate", "nominal", "mean", f"worst {DECILE:.0%}", "CVaR", "reach end", "breaks by"]
    return [
        head,
        *(
            [
                shorten(row.candidate, NAME_WIDTH),
                number(row.nominal, 3),
                number(row.mean[0], 3),
                _interval(row.worst_decile),
                number(row.cvar[0], 3),
                f"{row.survival:.0%}",
                row.verdict if row.breaks is None else str(row.breaks),
            ]
            for row in rows
        ),
    ]


def _interval(values: tuple[float, float, float]) -> str:
    mean, low, high = (number(x, 3) for x in values)
    return f"{mean} [{low}, {high}]"


def motion_rows(rows: Sequence[Summary]) -> list[list[str]]:
    """Return the header and a row for each candidate: means of the measured columns over the disturbed draws."""
    columns = [name for name in MOTION if any(name in row.motion for row in rows)]
    head = ["candidate", *(name.replace("_", " ") for name in columns)]
    values = [[_cell(row.motion.get(name, math.nan)) for name in columns] for row in rows]
    return [head, *([shorten(row.candidate, NAME_WIDTH), *cells] for row, cells in zip(rows, values))]


def command_rows(stress: Stress, rows: Sequence[Summary]) -> list[list[str]]:
    """Return the header and a row for each candidate and axis: means over the seeds."""
    names = ("gain", "dead_zone", "drift", "overshoot", "ended")
    cells = [["candidate", "axis", *(name.replace("_", " ") for name in names)]]
    for row in rows:
        of_candidate = [each for each in stress.commands if each.candidate == row.candidate]
        for axis in dict.fromkeys(each.axis for each in of_candidate):
            values = [[getattr(each, name) for each in of_candidate if each.axis == axis] for name in names]
            cells.append([shorten(row.candidate, NAME_WIDTH), axis, *(_cell(round(mean_or_nan(x), 3)) for x in values)])
    return cells


def physics_rows(stress: Stress, rows: Sequence[Summary]) -> list[list[str]]:
    """Return the header and a row for each candidate: fitness without disturbances, and the share that reaches the end.

    The first column is the run's own physics.
    """
    names = list(dict.fromkeys(row.physics for row in stress.rows if row.physics))
    cells = [["candidate", "own", *(name.replace("_", " ") for name in names)]]
    for row in rows:
        of_row = stress.in_physics(row.candidate)
        values = [of_row.get(name) for name in ("", *names)]
        texts = ["-" if x is None else f"{number(x[0], 3)} ({x[1]:.0%})" for x in values]
        cells.append([shorten(row.candidate, NAME_WIDTH), *texts])
    return cells


def _cell(value: float) -> str:
    return "-" if math.isnan(value) else number(value, 3)
