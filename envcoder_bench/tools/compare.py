"""Comparison of several runs of a task: one ranking, and differences of candidates that are in several runs.

Runs whose settings are equal but for their seeds are pooled: a candidate that several of them have counts once, with
the seeds of all. Runs differ in their seeds, so the ranking is by the fitness to expect on new ones (``search.merit``).

``render`` returns it as text, ``comparison_page`` as a page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.plain_text import one_line, visible
from envcoder_bench.core.settings import dotted
from envcoder_bench.core.words import aligned, decimal_places, join_some, join_words, wrap
from envcoder_bench.report.certainty import nothing_learnt
from envcoder_bench.report.page.run import PageCandidate, RunPage, render_page
from envcoder_bench.report.page.shell import Section, parts
from envcoder_bench.report.table import numbers, render_table
from envcoder_bench.results.fitness_model import Difference, FitnessModel
from envcoder_bench.results.logs import read_curves
from envcoder_bench.results.pairs import run_pairs
from envcoder_bench.results.ranking import Ranked, rank
from envcoder_bench.results.rows import NAN, Result, fewest_episodes, whole_fitness
from envcoder_bench.results.statistics import Evaluation, spearman
from envcoder_bench.run.folder.policies import OpenedRun, open_run
from envcoder_bench.run.folder.ranked import bounds_of, final_evaluation
from envcoder_bench.search.merit import Merits
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.loading import parse
from envcoder_bench.shaping.text import code_of
from envcoder_bench.tasks.base import BASELINES, UNTRAINED

if TYPE_CHECKING:
    import pandas as pd

MOST_POOLED = 20  # names in a note
LEAST_RANKED = 3  # least number of candidates in both runs for a correlation of their rankings
Names = Mapping[tuple[str, str], str]
_SEEDS = ("seed", "seeds")  # runs that differ in nothing else are pooled
_NOT_SETTINGS = ("candidates", "save_state", "checkpoint_minutes", "log_points", "profile", "max_memory")


@dataclass(frozen=True)
class SharedCandidate:
    """A candidate that is in the first run and in others, with the same name.

    Attributes:
        fitness: the fitness in the first run, with its interval.
        differences: differences of the other runs, by label.
        other_source: labels of the runs in which its text is another one.
    """

    name: str
    fitness: tuple[float, float, float]
    differences: Mapping[str, Difference]
    other_source: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Runs of one task, compared.

    Attributes:
        runs: the runs by label, in the order of the arguments.
        ranked: all candidates of all runs, best first, named as in ``names``.
        shared: candidates of the first run that other runs have.
        correlations: by label, Spearman's correlation of the ranking with that of the first run, and the number of
            candidates in both.
        settings: values by run of the settings that differ, by key.
        names: names in ``ranked`` by label and candidate: ``label: candidate``, or the candidate's of pooled runs.
    """

    runs: Mapping[str, OpenedRun]
    fitness_meaning: str
    ranked: Sequence[Ranked]
    shared: Sequence[SharedCandidate]
    correlations: Mapping[str, tuple[float, int]]
    settings: Mapping[str, Sequence[str]]
    names: Names

    @property
    def pooled(self) -> dict[str, list[tuple[str, str]]]:
        """Label and name in their runs of the candidates that are pooled over several, by name in ``ranked``."""
        pooled: dict[str, list[tuple[str, str]]] = {}
        for key, name in self.names.items():
            pooled.setdefault(name, []).append(key)
        return {name: keys for name, keys in pooled.items() if len(keys) > 1}


def full_name(label: str, candidate: str) -> str:
    """Return the name of a run's candidate among those of several runs."""
    return f"{label}: {candidate}"


def compare(folders: Sequence[str | Path]) -> Comparison:
    """Compare runs; differences are to the first one, and paired by seed where the runs have seeds in common.

    Raises UserError for fewer than two runs, a run that cannot be read, has no results or is given twice, and runs of
    different tasks or with different measures of fitness.
    """
    opened = [open_run(folder) for folder in folders]
    paths = [run.folder.path.resolve() for run in opened]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise UserError(f"{twice} is given twice")
    if len(opened) < 2:
        raise UserError("give at least two runs to compare")
    # the runs must have the same task and the same measure of fitness
    first = opened[0]
    meanings = [run.fitness_meaning for run in opened]
    for run, meaning in zip(opened[1:], meanings[1:]):
        if run.cfg.task.name != first.cfg.task.name:
            tasks = f"{first.cfg.task.name} in {first.folder.path}, {run.cfg.task.name} in {run.folder.path}"
            raise UserError(f"runs of different tasks cannot be compared: {tasks}")
        both = f"{first.folder.path} and {run.folder.path} measure different fitness"
        if meaning != meanings[0]:
            raise UserError(f"{both}: {meanings[0]}; {meaning}")
        if _measured_by(run) != _measured_by(first):
            raise UserError(f"{both}: their copies of the --fitness file have other code, see {run.folder.fitness}")
    for run in opened:
        if not any(row.measured for row in run.rows):
            raise UserError(f"{run.folder.path}: no candidate has a fitness yet")
    # the comparison
    runs = dict(zip(_labels(paths), opened))
    ranked = {label: run.ranked for label, run in runs.items()}
    label, settings = next(iter(runs)), _settings(runs)
    separate = {(run, row.candidate): full_name(run, row.candidate) for run in runs for row in ranked[run]}
    names = _pool(runs) if _alike(runs, settings) else separate
    model = _model(runs, separate)
    candidates = (_shared(row, runs, model) for row in ranked[label])
    shared = [candidate for candidate in candidates if candidate is not None]
    correlations = {other: _correlation(ranked[label], rows) for other, rows in list(ranked.items())[1:]}
    return Comparison(
        runs,
        meanings[0],
        _together(runs, names, names is not separate),
        shared,
        {other: pair for other, pair in correlations.items() if pair[1] >= LEAST_RANKED},
        settings,
        names,
    )


def _measured_by(run: OpenedRun) -> str:
    """Return a run's --fitness file without layout, comments and docstrings; empty for the task's own fitness."""
    if run.fitness is None:
        return ""
    try:
        parse(run.fitness.source, str(run.folder.fitness))
    except CandidateError as error:
        raise UserError(str(error)) from error
    return code_of(run.fitness.source)


def _labels(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that distinguish them."""
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        labels = [one_line("/".join(path.parts[-length:])) for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]


def _alike(runs: Mapping[str, OpenedRun], settings: Mapping[str, Sequence[str]]) -> bool:
    """Return whether the runs are one but for their seeds: with equal baselines, which fill in for candidates."""
    baselines = [{name: run.sources[name].source for name in BASELINES if name in run.sources} for run in runs.values()]
    texts = [{text for each in baselines if (text := each.get(name)) is not None} for name in BASELINES]
    whole = all(run.folder.complete for run in runs.values())
    return whole and {*settings} <= {*_SEEDS} and all(len(of_name) < 2 for of_name in texts)


def _pool(runs: Mapping[str, OpenedRun]) -> Names:
    """Return one name for equal files of several runs, their first one's; files that differ have different names."""
    names: dict[tuple[str, str], str] = {}
    by_text: dict[str, list[str]] = {}
    for label, run in runs.items():
        taken: set[str] = set()  # equal files of one run are two candidates
        for candidate in dict.fromkeys(row.candidate for row in run.rows):
            text = run.sources[candidate].source if candidate in run.sources else candidate
            same = [name for name in by_text.get(text, []) if name not in taken]
            name = candidate if candidate in same else same[0] if same else candidate
            if not same:
                name = full_name(label, candidate) if candidate in names.values() else candidate
                by_text.setdefault(text, []).append(name)
            taken.add(name)
            names[label, candidate] = name
    return names


def _together(runs: Mapping[str, OpenedRun], names: Names, pooled: bool) -> list[Ranked]:
    """Return one ranking of all runs, by the fitness to expect on new seeds, or without a spread by the mean."""
    if pooled:
        ranked = rank(_rows(runs, names), _bounds(runs), _evaluation(runs, names))
    else:
        ranked = [
            replace(row, candidate=names[label, row.candidate], run=label)
            for label, run in runs.items()
            for row in run.ranked
        ]
    merits = _merits(runs, names)
    none = dict(contender=False, steps_to_tie=NAN, tie_groups=(), expected=NAN)
    ends = ("expected", "expected_ci_low", "expected_ci_high")
    expected = {name: dict(zip(ends, merits.expected(name))) for name in merits.names if merits.has_spread}
    rows = [replace(row, **{**none, **expected.get(row.candidate, {})}) for row in ranked]
    # places follow the digits of the table
    measured = [row for row in rows if row.rank is not None]
    decimals = decimal_places([row.fitness for row in measured])

    def key(row: Ranked) -> tuple[bool, bool, float]:
        value = row.fitness if math.isnan(row.expected) else row.expected
        return row.stopped_at > 0, row.lost_seeds > 0, -round(value, decimals)

    measured.sort(key=key)
    places = [key(row) for row in measured]
    placed = [replace(row, rank=places.index(key(row)) + 1) for row in measured]
    return placed + [row for row in rows if row.rank is None]


def _rows(runs: Mapping[str, OpenedRun], names: Names) -> list[Result]:
    """Return the rows of all runs with other names; of two of one candidate and seed the first whole training."""
    rows: dict[tuple[str, int], Result] = {}
    for label, run in runs.items():
        for row in run.rows:
            named = replace(row, candidate=names[label, row.candidate])
            before = rows.get(named.key)
            if before is None or not before.measured or (before.stopped_at and named.measured):
                rows[named.key] = named
    return list(rows.values())


def _evaluation(runs: Mapping[str, OpenedRun], names: Names) -> Evaluation:
    """Return the episodes of the final evaluations with other names."""
    evaluation: Evaluation = {}
    for label, run in reversed([*runs.items()]):
        for (name, seed), episodes in (final_evaluation(run.folder, run.cfg) or {}).items():
            evaluation[names[label, name], seed] = episodes
    return evaluation


def _whole(runs: Mapping[str, OpenedRun], names: Names) -> dict[str, dict[int, float]]:
    """Return the fitness by seed without trainings that a race stopped, and without untrained policies."""
    untrained = {name for (_, candidate), name in names.items() if candidate == UNTRAINED}
    return whole_fitness(row for row in _rows(runs, names) if row.candidate not in untrained)


def _merits(runs: Mapping[str, OpenedRun], names: Names) -> Merits:
    """Return the shrunken fitness of all candidates together."""
    candidates = {name for (_, candidate), name in names.items() if candidate not in BASELINES}
    return Merits(_whole(runs, names), candidates, bounds=_bounds(runs))


def _model(runs: Mapping[str, OpenedRun], names: Names) -> FitnessModel:
    """Return a model of the fitness in all runs together."""
    episodes = fewest_episodes(row for run in runs.values() for row in run.rows)
    return FitnessModel(_whole(runs, names), _evaluation(runs, names), _bounds(runs), episodes)


def _bounds(runs: Mapping[str, OpenedRun]) -> tuple[float, float]:
    first = next(iter(runs.values()))
    return bounds_of(first.folder, first.cfg)


def _shared(row: Ranked, runs: Mapping[str, OpenedRun], model: FitnessModel) -> SharedCandidate | None:
    """Return a candidate of the first run with its differences in the others; None if no other run has it."""
    name, (first, *others) = row.candidate, runs
    first_name = full_name(first, name)
    labels = [label for label in others if {first_name, full_name(label, name)} <= set(model.names)]
    if not labels:
        return None
    differences = {label: model.difference(full_name(label, name), first_name) for label in labels}
    texts = {label: run.sources[name].source if name in run.sources else "" for label, run in runs.items()}
    changed = tuple(label for label in labels if texts[label] != texts[first])
    return SharedCandidate(name, (row.fitness, row.fitness_ci_low, row.fitness_ci_high), differences, changed)


def _correlation(first: Sequence[Ranked], second: Sequence[Ranked]) -> tuple[float, int]:
    """Return Spearman's rank correlation of the candidates that both trained, and their number; NaN if undefined."""
    places = [
        {row.candidate: row.fitness for row in rows if row.rank is not None and not row.stopped_at}
        for rows in (first, second)
    ]
    return spearman(*places), len(set(places[0]) & set(places[1]))


def _settings(runs: Mapping[str, OpenedRun]) -> dict[str, list[str]]:
    """Return the settings that are not equal in all runs, and versions and devices, by key."""
    flat = [dotted(run.cfg.plain()) for run in runs.values()]
    for settings, run in zip(flat, runs.values()):
        software = run.folder.software
        settings["device"] = software.pop("device", None) or settings.get("device")
        settings.update({f"version of {name}": version for name, version in software.items()})
    keys = list(dict.fromkeys(key for settings in flat for key in settings if key.split(".")[0] not in _NOT_SETTINGS))
    values = {key: ["null" if run.get(key) is None else one_line(run[key]) for run in flat] for key in keys}
    return {key: texts for key, texts in values.items() if len(set(texts)) > 1}


def shared_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of the candidates that are in several runs."""
    labels = list(comparison.runs)
    shared = comparison.shared
    decimals = decimal_places([candidate.fitness[0] for candidate in shared])
    columns = [numbers([candidate.fitness for candidate in shared], decimals)]
    none = Difference()
    for label in labels[1:]:
        differences = [candidate.differences.get(label, none) for candidate in shared]
        cells = numbers([(x.mean, x.low, x.high) for x in differences], decimals, "+")
        marks = [_mark(label, candidate, x) for candidate, x in zip(shared, differences)]
        columns.append([f"{cell}{mark}" for cell, mark in zip(cells, marks)])
    header = ["candidate", labels[0], *labels[1:]]
    return header, [[candidate.name, *(column[k] for column in columns)] for k, candidate in enumerate(shared)]


def _mark(label: str, candidate: SharedCandidate, difference: Difference) -> str:
    if math.isnan(difference.mean):
        return ""
    return " u" * (difference.seeds == 0) + " *" * (label in candidate.other_source)


def unlearnt(comparison: Comparison) -> dict[str, str]:
    """Return the warnings of ``nothing_learnt`` by label."""
    warnings = {label: nothing_learnt(run.ranked) for label, run in comparison.runs.items()}
    return {label: words for label, words in warnings.items() if words}


def notes(comparison: Comparison) -> list[str]:
    """Return how the ranking is ordered, explanations of ``shared_table``, and the correlations, one line each."""
    return [*_order_notes(comparison), *_shared_notes(comparison)]


def _shared_notes(comparison: Comparison) -> list[str]:
    first = next(iter(comparison.runs))
    differences = [difference for row in comparison.shared for difference in row.differences.values()]
    lines = [
        f"{first}: fitness; other runs: difference to it, paired by seed, ±: 95 % interval, with the"
        " spread of seeds of all candidates"
    ]
    for label, run in comparison.runs.items():
        if not run.folder.complete:
            done = max((row.env_steps for row in run.rows), default=0)
            lines.append(
                f"{label} is not complete: its fitness is that of its last evaluation, after {done:,} env-steps of each"
                " candidate, which may be of shorter episodes"
            )
    if any(difference.seeds == 0 for difference in differences):
        lines.append("u: not paired, because the runs have no seed in common")
    if any(row.other_source for row in comparison.shared):
        lines.append("*: the file of this name is another one in that run")
    for label, (value, count) in comparison.correlations.items():
        text = "undefined" if math.isnan(value) else f"{value:+.2f}"
        lines.append(f"ranking of {label} and of {first}: Spearman's correlation {text} over {count} candidates")
    return lines


def _order_notes(comparison: Comparison) -> list[str]:
    """Return how the ranking is ordered, and what it pools."""
    lines = []
    if any(not math.isnan(row.expected) for row in comparison.ranked):
        lines.append(
            "ranked by the fitness to expect on new seeds: without what a seed does to all, and drawn to the mean"
        )
    pools = {name: keys for name, keys in comparison.pooled.items() if name != UNTRAINED}
    if pools:
        others = {name: [full_name(*key) for key in keys if key[1] != name] for name, keys in pools.items()}
        texts = [name + f" ({join_words(full_names)})" * bool(full_names) for name, full_names in others.items()]
        lines.append(f"pooled over runs, which differ in their seeds alone: {join_some(texts, MOST_POOLED)}")
    return lines


def render(comparison: Comparison, width: int = 100, bold: bool = False) -> str:
    """Return the comparison as text."""
    meaning = comparison.fitness_meaning
    tested = "" if comparison.pooled else "those of its run"
    parts = [render_table(comparison.ranked, meaning, width, bold, tested=tested, best=False).rstrip()]
    parts += [wrap(line, width) for line in _order_notes(comparison)]
    more = [wrap(f"{label}: {words}", width) for label, words in unlearnt(comparison).items()]
    if comparison.shared:
        header, rows = shared_table(comparison)
        more.append("\n".join(["in several runs", "", *aligned([header, *rows])]))
        more.append("\n".join(_shared_notes(comparison)))
    if comparison.settings:
        lines = [f"  {one_line(key)}: {' | '.join(values)}" for key, values in comparison.settings.items()]
        more.append("\n".join(["different settings:", *lines]))
    return "\n\n".join([*parts, *map(visible, more)]) + "\n"


def comparison_page(comparison: Comparison) -> str:
    """Return the comparison as one HTML file, with the parts of a run's page."""
    runs = comparison.runs
    first = next(iter(runs.values()))
    return render_page(
        RunPage(
            title=f"{first.cfg.task_title}: comparison of {len(runs)} runs",
            fitness_meaning=comparison.fitness_meaning,
            ranked=comparison.ranked,
            pairs=run_pairs(_model(runs, comparison.names), comparison.ranked, extends=False),
            candidates=_sources(comparison),
            facts=list(runs),
            curves=_logs(comparison, lambda run: run.folder.curves),
            components=_logs(comparison, lambda run: run.folder.components),
            step_fitness=_logs(comparison, lambda run: run.folder.step_fitness),
            sections=_page_sections(comparison),
            how={label: str(run.folder.path) for label, run in runs.items()},
        )
    )


def _sources(comparison: Comparison) -> list[PageCandidate]:
    """Return the sources of all runs; those that differ from the first run's are compared with it."""
    first_label, first = next(iter(comparison.runs.items()))
    candidates: dict[str, PageCandidate] = {}
    for label, run in comparison.runs.items():
        for candidate, source in run.sources.items():
            name, other, against = (
                comparison.names.get((label, candidate), full_name(label, candidate)),
                first.sources.get(candidate),
                None,
            )
            if other is not None and other.source != source.source:
                original = comparison.names.get((first_label, candidate), full_name(first_label, candidate))
                against = (original, other.source)
            facts = {"run": ", ".join(run for run, _ in comparison.pooled.get(name, [(label, candidate)]))}
            candidates.setdefault(name, PageCandidate(name, source.file, source.source, facts, against))
    return [*candidates.values()]


def _logs(comparison: Comparison, path_of: Callable[[OpenedRun], Path]) -> pd.DataFrame | None:
    """Return a log of all runs together, with the names of the ranking; None if no run has it."""
    import pandas as pd  # slow to import, and the text does not need it

    tables = []
    for label, run in comparison.runs.items():
        if path_of(run).is_file():
            table = read_curves(path_of(run))
            names = [comparison.names.get((label, name), full_name(label, name)) for name in table["candidate"]]
            tables.append(table.assign(candidate=names))
    if not tables:
        return None
    every = pd.concat(tables, ignore_index=True)
    # a seed that two runs share counts once
    keys = [key for key in ("candidate", "seed", "iteration", "component", "step") if key in every]
    return every.drop_duplicates(keys) if comparison.pooled else every


def _page_sections(comparison: Comparison) -> list[Section]:
    sections = []
    if comparison.shared:
        header, rows = shared_table(comparison)
        lines = [*notes(comparison), *(f"{label}: {words}" for label, words in unlearnt(comparison).items())]
        table = parts().table(header, rows, ["name", *["number"] * (len(header) - 1)])
        sections.append(Section("shared-section", "In several runs", table + parts().notes(lines)))
    if comparison.settings:
        rows = [[key, *values] for key, values in comparison.settings.items()]
        table = parts().table(["", *comparison.runs], rows, ["name", *[""] * len(comparison.runs)])
        sections.append(Section("settings-section", "Different settings", table))
    return sections
