"""The report of a search: rounds, candidates and their parents, the winner's source, and failures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.certainty import LONGER, nothing_learnt
from envcoder_bench.report.page.content import PageVideos, RunPage
from envcoder_bench.report.page.run import render_page
from envcoder_bench.report.page.shell import Section, code, difference, macros, parts
from envcoder_bench.report.ranking import decimal_places
from envcoder_bench.report.table import numbers, shorten
from envcoder_bench.report.words import counted, without_folders
from envcoder_bench.search import report_page
from envcoder_bench.search.family import ancestry, family, first_parent
from envcoder_bench.search.report_plot import plot_search
from envcoder_bench.search.report_scores import above_reference, digits_of, fixed_or_none, scored
from envcoder_bench.search.source_diff import diff

if TYPE_CHECKING:
    from envcoder_bench.search.records import Archive, Attempt

REPORT, PICTURE = "report.html", "fitness.png"
TEMPLATE = "search/report.html"
MAX_LINES = 1000  # of sources that are compared, because the time grows at least quadratically
ERROR_WIDTH = 400  # characters of an error; archive.json has all of it


def write_report(
    folder: Path, archive: Archive, meta: Mapping[str, Any], videos: PageVideos | None = None
) -> list[Path]:
    """Write ``report.html``, which is self-contained, and its picture ``fitness.png``; return their paths.

    Args:
        folder: the search's folder.
        archive: its attempts.
        meta: facts on the search, each key optional: task, task_description, fitness_meaning, llm, shaper_types,
            rounds_planned, stopped (why it ended early), usage (of each round: round, requests, input_tokens,
            output_tokens, cost in US dollars or None), final (of the winner and both baselines: name, fitness, ci_low,
            ci_high, episodes, seeds) and final_note.
        videos: of the final evaluation.
    """
    task = str(meta.get("task") or "")
    image = plot_search(archive, folder / PICTURE, task, str(meta.get("fitness_meaning") or "unknown"))
    rounds = max((a.round for a in archive.attempts), default=0)
    curves, components = report_page.logs(folder, rounds)
    scores = {name: own.score for name, own in archive.merits().items()}
    run = RunPage(
        title=f"{task}: search for shaping" if task else "Search for shaping",
        fitness_meaning=str(meta.get("fitness_meaning") or "unknown"),
        ranked=report_page.ranking(archive) if archive.attempts else [],
        candidates=report_page.candidates(archive),
        curves=curves,
        components=components,
        videos=videos or PageVideos(),
        sections=_sections(archive, meta, image),
        lead=_verdict(archive, meta),
        scores=scores,
    )
    write_atomic(folder / REPORT, render_page(run))
    return [folder / REPORT, image]


def _sections(archive: Archive, meta: Mapping[str, Any], image: Path) -> list[Section]:
    best = archive.best()
    picture = parts().picture(image.read_bytes(), "fitness of the candidates of each round, and of the baselines")
    sections = [
        Section("search-section", "The search", _facts(archive, meta) + picture, True),
        Section("final-section", "Final evaluation", _final(meta, best), True),
    ]
    if best is not None:
        sections.append(Section("best-section", f"The best: {best.name}", _winner(archive, best), True))
    if archive.attempts:
        sections += [
            Section("rounds-section", "Rounds", _rounds(archive, meta), True),
            Section("family-section", "Parents and variants", macros(TEMPLATE).tree(family(archive))),
        ]
    return [*sections, Section("failures-section", "Failures", _failures(archive))]


def _verdict(archive: Archive, meta: Mapping[str, Any]) -> list[str]:
    """Return the first words: the verdict of the final evaluation, or else the best of the rounds."""
    best = archive.best()
    if best is None:
        return ["No candidate has a fitness yet."]
    note = without_folders(str(meta.get("final_note") or ""))
    warning = nothing_learnt(report_page.ranking(archive), LONGER)
    if note:
        line = f"{note}."
    else:
        above = above_reference(archive, best, digits_of(archive))
        versus = f", {above} against {archive.reference}" if above else ""
        line = f"The best so far: {best.name}{versus}, with {counted(len(best.by_seed), 'seed')} of the rounds."
        line += " There is no final evaluation yet."
    return [line, *([warning] if warning else [])]


def _facts(archive: Archive, meta: Mapping[str, Any]) -> Markup:
    done = max((a.round for a in archive.attempts), default=0)
    planned = meta.get("rounds_planned")
    failed = sum(a.fitness is None for a in archive.attempts)
    count = len(archive.attempts)
    lost = "" if not failed else f", {failed} of them failed" if count > 1 else ", which failed"
    kinds = meta.get("shaper_types")
    usage = list(meta.get("usage") or ())
    facts = {
        "task description": meta.get("task_description"),
        "fitness": meta.get("fitness_meaning"),
        "functions": ", ".join(kinds) if kinds else "all",
        "written by": without_folders(str(meta.get("llm") or "")),
        "rounds": f"{done} of {planned}" if planned else done,
        "candidates": f"{count}{lost}",
        "tokens": f"{sum(_tokens(u) for u in usage):,}" if usage else None,
        "cost": _cost([u.get("cost") for u in usage]) if usage else None,
        "ended early": without_folders(str(meta.get("stopped") or "")),
    }
    return parts().table(["", ""], [(name, str(value)) for name, value in facts.items() if value], ["name", ""])


def _final(meta: Mapping[str, Any], best: Attempt | None) -> Markup:
    """Return the final evaluation, with seeds that no round had."""
    rows = list(meta.get("final") or ())
    if not rows:
        return Markup()
    nan = math.nan
    intervals = [tuple(nan if row.get(k) is None else row[k] for k in ("fitness", "ci_low", "ci_high")) for row in rows]
    fitness = numbers(intervals, decimal_places([x for x, *_ in intervals]))  # type: ignore[arg-type]
    cells = [
        (str(row["name"]), value.strip() or "none", _count(row.get("episodes")), _count(row.get("seeds")))
        for row, value in zip(rows, fitness)
    ]
    strong = next((k for k, row in enumerate(rows) if best and row["name"] == best.name), -1)
    table = parts().table(["", "fitness", "episodes", "seeds"], cells, ["name", "number", "number", "number"], strong)
    return table + parts().notes(["Trained again, with seeds that no round had. ±: half of a 95 % interval."])


def _winner(archive: Archive, best: Attempt) -> Markup:
    digits, parent = digits_of(archive), first_parent(archive, best)
    chain = " → ".join(f"{a.name} ({scored(archive, a, digits)})" for a in ancestry(archive, best))
    changes, why = Markup(), ""
    if parent is not None:
        if max(len(a.source.splitlines()) for a in (parent, best)) > MAX_LINES:
            why = f"The sources are too long for a comparison: one has more than {MAX_LINES:,} lines."
        else:
            lines = diff(parent, best)
            changes, why = (difference(lines), "") if lines else (Markup(), "Only the layout.")
    name = None if parent is None else parent.name
    return macros(TEMPLATE).winner(best.origin, chain, code(best.source), name, changes, why)


def _rounds(archive: Archive, meta: Mapping[str, Any]) -> Markup:
    usage = {u.get("round"): u for u in meta.get("usage") or ()}
    digits, rows = digits_of(archive), []
    reference = archive.baselines.get(archive.reference)
    for number in range(1, max(a.round for a in archive.attempts) + 1):
        attempts = archive.of_round(number)
        fitness = [a.fitness for a in attempts if a.fitness is not None]
        level = None if reference is None else archive.in_round(reference, number)
        ranked = archive.ranked(attempts)
        row = [str(number), str(len(attempts)), str(len(attempts) - len(fitness))]
        row += ["" if level is None else fixed_or_none(level, digits)]
        row += [ranked[0].name, fixed_or_none(ranked[0].fitness, digits)] if ranked else ["", ""]
        row += [above_reference(archive, ranked[0], digits) if ranked else ""]
        row += [fixed_or_none(statistics.median(fitness), digits) if fitness else ""]
        if usage:
            used = usage.get(number)
            row += [f"{_tokens(used):,}", _cost([used.get("cost")])] if used else ["", ""]
        rows.append(row)
    header = [
        "round",
        "candidates",
        "failed",
        archive.reference,
        "best",
        "fitness",
        f"vs {archive.reference}",
        "median",
    ]
    header += ["tokens", "cost"] if usage else []
    kinds = ["name" if name == "best" else "number" for name in header]
    return parts().table(header, [[shorten(cell, 40) for cell in row] for row in rows], kinds)


def _failures(archive: Archive) -> Markup:
    failed = [a for a in archive.attempts if a.fitness is None]
    rows = [(shorten(a.name, 40), a.outcome, shorten(without_folders(a.reason), ERROR_WIDTH)) for a in failed]
    return parts().table(["", "", "reason"], rows, ["name", "name", ""]) if rows else Markup()


def _count(value: Any) -> str:
    return "" if value is None else f"{value:,}"


def _tokens(usage: Mapping[str, Any]) -> int:
    return (usage.get("input_tokens") or 0) + (usage.get("output_tokens") or 0)


def _cost(costs: Sequence[float | None]) -> str:
    """Return the sum of the known costs in US dollars, and whether some are unknown."""
    known = [cost for cost in costs if cost is not None]
    if not known:
        return "unknown"
    return f"${sum(known):.2f}" if len(known) == len(costs) else f"${sum(known):.2f} and unknown costs"
