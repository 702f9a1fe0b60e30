"""The report of a search: rounds, candidates and their parents, the winner's source, and failures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.plain_text import visible
from envcoder_bench.core.words import counted, decimal_places, fixed, join_words, shorten, without_folders
from envcoder_bench.report.certainty import LONGER, nothing_learnt
from envcoder_bench.report.page.run import PageCandidate, PageVideos, RunPage, render_page
from envcoder_bench.report.page.shell import Section, changes, code, macros, parts
from envcoder_bench.report.table import numbers
from envcoder_bench.results.fitness_model import Difference, FitnessModel
from envcoder_bench.results.logs import COMPONENTS, CURVES, STEP_FITNESS, read_curves
from envcoder_bench.results.pairs import run_pairs
from envcoder_bench.results.ranking import NAN, Ranked
from envcoder_bench.search.archive import Archive, Attempt, compared, difference
from envcoder_bench.search.merit import expected_text
from envcoder_bench.search.report_plot import plot_search
from envcoder_bench.tasks.base import HUMAN

if TYPE_CHECKING:
    import pandas as pd

    from envcoder_bench.search.llm import Usage

REPORT, PICTURE = "report.html", "fitness.png"
TEMPLATE = "search/report.html"
ERROR_WIDTH = 400  # characters of an error; archive.json has all of it


@dataclass(frozen=True)
class SearchFacts:
    """What a report says of a search beside its archive; empty parts are left out.

    Attributes:
        stopped: why it ended early.
        usage: requests and tokens by round.
        final: the final evaluation's ranking.
        final_note: what it means for the winner.
    """

    task: str = ""
    task_description: str = ""
    fitness_meaning: str = "unknown"
    llm: str = ""
    shaper_types: Sequence[str] | None = None
    rounds_planned: int = 0
    stopped: str = ""
    usage: Mapping[int, Usage] = field(default_factory=dict)
    final: Sequence[Ranked] = ()
    final_note: str = ""


def write_report(folder: Path, archive: Archive, facts: SearchFacts, videos: PageVideos | None = None) -> list[Path]:
    """Write ``report.html``, which is self-contained, and its picture ``fitness.png``; return their paths."""
    image = plot_search(archive, folder / PICTURE, facts.task, facts.fitness_meaning)
    runs = [folder / "rounds" / str(number) / "run" for number in range(1, _rounds_done(archive) + 1)]
    ranked = ranking(archive) if archive.attempts else []
    run = RunPage(
        title=f"{facts.task}: search for shaping" if facts.task else "Search for shaping",
        fitness_meaning=facts.fitness_meaning,
        ranked=ranked,
        pairs=run_pairs(archive.model(), ranked, extends=False) if ranked else None,
        candidates=_candidates(archive),
        curves=_together([run / CURVES for run in runs]),
        components=_together([run / COMPONENTS for run in runs]),
        step_fitness=_together([run / STEP_FITNESS for run in runs]),
        videos=videos or PageVideos(),
        sections=_sections(archive, facts, image),
        lead=_lead(archive, facts),
        scores={name: archive.merits().score(name) for name in archive.merits().names},
    )
    write_atomic(folder / REPORT, render_page(run))
    return [folder / REPORT, image]


def _rounds_done(archive: Archive) -> int:
    return max((a.round for a in archive.attempts), default=0)


# sections of the page


def _sections(archive: Archive, facts: SearchFacts, image: Path) -> list[Section]:
    best = archive.best()
    picture = parts().picture(image.read_bytes(), "fitness of the candidates of each round, and of the baselines")
    sections = [
        Section("search-section", "The search", _facts_table(archive, facts) + picture, True),
        Section("final-section", "Final evaluation", _final(facts.final, best), True),
    ]
    if best is not None:
        sections.append(Section("best-section", f"The best: {best.name}", _winner(archive, best), True))
    if archive.attempts:
        sections += [
            Section("rounds-section", "Rounds", _rounds(archive, facts.usage), True),
            Section("family-section", "Parents and variants", macros(TEMPLATE).tree(family(archive))),
        ]
    failed = [a for a in archive.attempts if a.fitness is None]
    rows = [(shorten(a.name, 40), a.outcome, shorten(without_folders(a.reason), ERROR_WIDTH)) for a in failed]
    failures = parts().table(["", "", "reason"], rows, ["name", "name", ""]) if rows else Markup()
    return [*sections, Section("failures-section", "Failures", failures)]


def _lead(archive: Archive, facts: SearchFacts) -> list[str]:
    """Return the first words: the verdict of the final evaluation, or else the best of the rounds."""
    best = archive.best()
    if best is None:
        return ["No candidate has a fitness yet."]
    note = without_folders(facts.final_note)
    line = f"{note}." if note else f"The best so far: {best.name}: {expected_text(archive.merits(), best.name)}."
    line += "" if note else " The final evaluation has not been made yet."
    warning = nothing_learnt(ranking(archive), LONGER)
    return [line, warning] if warning else [line]


def _facts_table(archive: Archive, facts: SearchFacts) -> Markup:
    done, planned, usage = _rounds_done(archive), facts.rounds_planned, facts.usage.values()
    failed, count = sum(a.fitness is None for a in archive.attempts), len(archive.attempts)
    lost = "" if not failed else f", {failed} of them failed" if count > 1 else ", which failed"
    facts_by_title = {
        "task description": facts.task_description,
        "fitness": facts.fitness_meaning,
        "functions": ", ".join(facts.shaper_types or ()) or "all",
        "written by": without_folders(facts.llm),
        "rounds": f"{done} of {planned}" if planned else done,
        "candidates": f"{count}{lost}",
        "tokens": f"{sum(map(_tokens, usage)):,}" if usage else None,
        "cost": _cost([used.cost for used in usage]) if usage else None,
        "ended early": without_folders(facts.stopped),
    }
    rows = [(title, str(value)) for title, value in facts_by_title.items() if value]
    return parts().table(["", ""], rows, ["name", ""])


def _final(rows: Sequence[Ranked], best: Attempt | None) -> Markup:
    """Return the final evaluation, with seeds that no round had."""
    if not rows:
        return Markup()
    intervals = [(row.fitness, row.fitness_ci_low, row.fitness_ci_high) for row in rows]
    fitness = numbers(intervals, decimal_places([row.fitness for row in rows]))
    counts = [(f"{row.episodes:,}" if row.episodes else "", f"{len(row.seeds):,}") for row in rows]
    cells = [(row.candidate, value.strip() or "none", *count) for row, value, count in zip(rows, fitness, counts)]
    strong = next((k for k, row in enumerate(rows) if best and row.candidate == best.name), -1)
    table = parts().table(["", "fitness", "episodes", "seeds"], cells, ["name", "number", "number", "number"], strong)
    return table + parts().notes(["Trained again, with seeds that no round had. ±: half of a 95 % interval."])


def _winner(archive: Archive, best: Attempt) -> Markup:
    digits, parent = _digits(archive), first_parent(archive, best)
    chain = " → ".join(f"{a.name} ({scored(archive, a, digits)})" for a in ancestry(archive, best))
    differences = None if parent is None else changes(parent.source, best.source)
    name = None if parent is None else parent.name
    return macros(TEMPLATE).winner(best.origin, chain, code(best.source), name, differences)


def _rounds(archive: Archive, usage: Mapping[int, Usage]) -> Markup:
    digits, rows = _digits(archive), []
    reference = archive.baselines.get(archive.reference)
    for round in range(1, _rounds_done(archive) + 1):
        attempts = archive.of_round(round)
        fitness = [a.fitness for a in attempts if a.fitness is not None]
        # the baseline trains with the seeds of each round, and differs with them
        level = None if reference is None else archive.in_round(reference, round)
        ranked = archive.ranked(attempts)
        row = [str(round), str(len(attempts)), str(len(attempts) - len(fitness))]
        row += ["" if level is None else _fixed(level, digits)]
        row += [ranked[0].name, _fixed(ranked[0].fitness, digits)] if ranked else ["", ""]
        row += [above_reference(archive, ranked[0], digits) if ranked else ""]
        row += [_fixed(statistics.median(fitness), digits) if fitness else ""]
        if usage:
            used = usage.get(round)
            row += [f"{_tokens(used):,}", _cost([used.cost])] if used else ["", ""]
        rows.append([shorten(cell, 40) for cell in row])
    versus = f"vs {archive.reference}"
    header = ["round", "candidates", "failed", archive.reference, "best", "fitness", versus, "median"]
    header += ["tokens", "cost"] if usage else []
    return parts().table(header, rows, ["name" if name == "best" else "number" for name in header])


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


def _cost(costs: Sequence[float | None]) -> str:
    """Return the sum of the known costs in US dollars, and whether some are unknown."""
    dollars = [cost for cost in costs if cost is not None]
    if not dollars:
        return "unknown"
    return f"${sum(dollars):.2f}" if len(dollars) == len(costs) else f"${sum(dollars):.2f} and unknown costs"


def best_facts(archive: Archive, search: str, facts: SearchFacts) -> dict[str, str]:
    """Return what best.py begins with, by title; empty without a best candidate."""
    best = archive.best()
    if best is None:
        return {}
    merits, seeds = archive.merits(), counted(len(best.by_seed), "seed")
    fitness = f"{_fixed(best.fitness, _digits(archive))}, mean of {seeds}: {facts.fitness_meaning}"
    facts_by_title = {
        "task": facts.task or "unknown",
        "candidate": f"{best.name} of the search {search}, written in round {best.round}",
        "origin": without_folders(best.origin),
        "fitness": fitness,
        "expected": expected_text(merits, best.name) if best.name in merits.names else "",
        "final evaluation": without_folders(facts.final_note),
    }
    return {title: visible(text) for title, text in facts_by_title.items() if text}


# parts that the report shares with the page of a run


def ranking(archive: Archive) -> list[Ranked]:
    """Return all attempts and baselines as rows of a ranking: by their score, then those without a fitness."""
    human, model = archive.baselines.get(HUMAN), archive.model()
    by_name = archive.by_name
    scored_ones = [by_name[name] for name in archive.order()]
    rows = [_row(attempt, k, human, archive, model) for k, attempt in enumerate(scored_ones, 1)]
    names = {attempt.name for attempt in scored_ones}
    return rows + [_row(a, None, human, archive, model) for a in archive.attempts if a.name not in names]


def _row(attempt: Attempt, rank: int | None, human: Attempt | None, archive: Archive, model: FitnessModel) -> Ranked:
    low, high = archive.interval(attempt, model) or (NAN, NAN)
    versus = None
    if human is not None and attempt.name != human.name:
        versus = compared(attempt, human, model)
    versus = versus or Difference()
    expected, expected_low, expected_high = model.expected.get(attempt.name, (NAN, NAN, NAN))
    return Ranked(
        rank=rank,
        candidate=attempt.name,
        status=attempt.outcome,
        fitness=NAN if attempt.fitness is None else attempt.fitness,
        fitness_ci_low=low,
        fitness_ci_high=high,
        interval_over="" if low != low else "seeds" if len(attempt.by_seed) > 1 else "episodes",
        seeds=tuple(sorted(attempt.by_seed)),
        vs_human=versus.mean,
        vs_human_ci_low=versus.low,
        vs_human_ci_high=versus.high,
        expected=expected,
        expected_ci_low=expected_low,
        expected_ci_high=expected_high,
        stopped_at=attempt.stopped_at,
        episode_length=NAN if attempt.episode_length is None else attempt.episode_length,
        faults=() if attempt.fault is None else (attempt.fault.without_folders(),),
    )


def _candidates(archive: Archive) -> list[PageCandidate]:
    """Return the sources of all attempts and baselines, compared with their parents."""
    candidates = []
    for attempt in [*archive.references, *archive.attempts]:
        parent = first_parent(archive, attempt)
        facts = {
            "round": str(attempt.round or ""),
            "parents": ", ".join(attempt.parents),
            "origin": without_folders(attempt.origin),
            "left out": f"{join_words(attempt.left_out)}: not functions of this search" if attempt.left_out else "",
        }
        against = None if parent is None else (parent.name, parent.source)
        file = f"{attempt.name}.py" if attempt.source else ""
        candidates.append(PageCandidate(attempt.name, file, attempt.source or None, facts, against))
    return candidates


def _together(paths: Sequence[Path]) -> pd.DataFrame | None:
    """Return the learning curves, or the reward components, of all rounds of a search; None without any."""
    import pandas as pd

    tables = []
    for path in paths:
        try:
            tables.append(read_curves(path))
        except (OSError, ValueError):  # not trained yet, or damaged
            continue
    return pd.concat(tables, ignore_index=True) if tables else None


# fitness as text


def above_reference(archive: Archive, attempt: Attempt, digits: int) -> str:
    """Return the mean difference to the baseline with the same seeds, with its sign; empty if there is none."""
    reference = archive.baselines.get(archive.reference)
    if reference is None or attempt.name == reference.name:
        return ""
    above = difference(attempt, reference)
    return "" if above is None else fixed(above, digits, "+")


def scored(archive: Archive, attempt: Attempt, digits: int) -> str:
    """Return fitness and the difference to the baseline: ``0.247, +0.000``."""
    return ", ".join(x for x in (_fixed(attempt.fitness, digits), above_reference(archive, attempt, digits)) if x)


def _digits(archive: Archive) -> int:
    """Return the decimal places of all fitness values of a report."""
    return decimal_places([a.fitness for a in [*archive.references, *archive.attempts] if a.fitness is not None])


def _fixed(value: float | None, digits: int) -> str:
    return "none" if value is None else fixed(value, digits)


# parents and variants


def first_parent(archive: Archive, attempt: Attempt) -> Attempt | None:
    """Return the first of an attempt's parents that is in the archive."""
    by_name = archive.by_name
    return next((by_name[name] for name in attempt.parents if name in by_name), None)


def ancestry(archive: Archive, attempt: Attempt) -> list[Attempt]:
    """Return the chain of first parents up to an attempt, the oldest first."""
    by_name, line = archive.by_name, [attempt]
    while True:
        parent = next((by_name[name] for name in line[-1].parents[:1] if name in by_name), None)
        if parent is None or any(parent is a for a in line):
            return line[::-1]
        line.append(parent)


def family(archive: Archive) -> str:
    """Return all attempts as a tree of indented lines, each below its first parent, with its fitness."""
    everyone = [*archive.baselines.values(), *archive.attempts]
    names = {a.name for a in everyone}
    children: dict[str, list[Attempt]] = {}
    roots = []
    # below the first parent; one whose parent is gone is a root
    for attempt in everyone:
        first = attempt.parents[0] if attempt.parents else None
        if first in names and ancestry(archive, attempt)[0] is not attempt:
            children.setdefault(str(first), []).append(attempt)
        else:
            roots.append(attempt)
    digits, best, lines = _digits(archive), archive.best(), []
    # depth first
    todo = [(root, "", "") for root in reversed(roots)]
    while todo:
        attempt, prefix, below = todo.pop()
        fitness = scored(archive, attempt, digits) if attempt.fitness is not None else attempt.outcome
        if attempt.stopped_at:
            fitness = f"{fitness}, {attempt.outcome}"
        if attempt.name in archive.baselines and attempt.fitness is None:
            fitness = "not measured"
        others = f"  with {', '.join(attempt.parents[1:])}" if len(attempt.parents) > 1 else ""
        mark = "  ← the best" if attempt is best else ""
        lines.append(f"{prefix}{shorten(attempt.name, 40)}  {fitness}{others}{mark}")
        variants = children.get(attempt.name, [])
        for k, child in reversed(list(enumerate(variants))):
            last = k == len(variants) - 1
            todo.append((child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    return "\n".join(lines)
