"""The page of a run: ranking, videos, curves, candidates and how it was run."""

from pathlib import Path
from typing import Any

from envcoder_bench.report.certainty import nothing_learnt, some
from envcoder_bench.report.page import shell
from envcoder_bench.report.page.changes import changes
from envcoder_bench.report.page.charts import chart_data
from envcoder_bench.report.page.content import PageCandidate, RunPage
from envcoder_bench.report.page.ranking import fitness_decimals, ranking_values
from envcoder_bench.report.ranking import Ranked
from envcoder_bench.report.results import SKIPPED
from envcoder_bench.report.table import split_place
from envcoder_bench.report.words import fixed

MOST_SOURCE = 200_000  # characters of a source on the page
MOST_COLOURED = 40  # sources in colour, those of the first rows: the lexer takes most of the time of a long page


def render_page(run: RunPage) -> str:
    """Return the page as HTML."""
    anchors = {row.candidate: f"candidate-{k}" for k, row in enumerate(run.ranked)}
    sources = {candidate.name: candidate for candidate in run.candidates}
    lead = [*(run.lead or _lead(run)), f"Fitness: {run.fitness_meaning}"]
    return shell.render(
        "report/page/run.html",
        run.title,
        lead,
        run.facts,
        chart_data(run),
        run=run,
        ranking=ranking_values(run.ranked, anchors, run.scores, run.folder),
        candidates=[
            {
                "anchor": anchors[row.candidate],
                "row": row,
                **_details(
                    row, sources.get(row.candidate) or PageCandidate(row.candidate, "", None), k < MOST_COLOURED
                ),
            }
            for k, row in enumerate(run.ranked)
        ],
    )


def _lead(run: RunPage) -> list[str]:
    """Return the best candidate, with the baselines, and whether nothing has been learnt."""
    candidates = [row for row in run.ranked if row.rank is not None and not row.baseline]
    if not candidates:
        return ["No candidate has a fitness."]
    decimals = fitness_decimals(run.ranked)
    best = [row.candidate for row in candidates if row.rank == candidates[0].rank]
    words = f"Best candidate: {best[0]}" if len(best) == 1 else f"Best candidates, equal: {some(best)}"
    words += f", fitness {fixed(candidates[0].fitness, decimals)}"
    baselines = [row for row in run.ranked if row.baseline and row.rank is not None]
    versus = ", ".join(f"{row.candidate} {fixed(row.fitness, decimals)}" for row in baselines)
    warning = nothing_learnt(run.ranked, folder=run.folder)
    return [words + (f" (baselines: {versus})." if versus else "."), *([warning] if warning else [])]


def _details(row: Ranked, candidate: PageCandidate, coloured: bool) -> dict[str, Any]:
    """Return a candidate's facts, faults, differences and source for the template."""
    errors: list[str] = []
    faults: set[int] = set()  # lines of its file that are named in errors
    for error in row.errors if row.status != SKIPPED else ():
        where, message = split_place(error)
        file, _, line = where.rpartition(":")
        if line.isdigit() and candidate.file and Path(file).name == Path(candidate.file).name:
            faults.add(int(line))
        errors.append(f"{where}: {message}" if where else message)
    source = candidate.source
    return {
        "facts": {**_results(row), **candidate.facts, "file": candidate.file},
        "errors": errors,
        "against": candidate.against and candidate.against[0],
        "changes": changes(candidate.against[1], source) if source and candidate.against else None,
        "source": None if source is None else shell.code(source[:MOST_SOURCE], faults, coloured),
    }


def _results(row: Ranked) -> dict[str, str]:
    facts = {}
    if row.rank is not None:
        facts["seeds"] = ", ".join(map(str, row.seeds))
        facts["episodes"] = f"{row.episodes:,}"
    if row.env_steps:
        facts["trained on"] = f"{row.env_steps:,} env-steps"
    if row.stopped_at:
        facts["stopped by the race"] = f"at iteration {row.stopped_at:,}: {row.reason}"
    if row.unstable_resets:
        facts["unstable physics"] = f"{row.unstable_resets:,} of {row.training_episodes:,} training episodes"
    return facts
