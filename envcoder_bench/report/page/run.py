"""The page of a run: ranking, videos, curves, candidates and how it was run."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcoder_bench.core.plain_text import visible
from envcoder_bench.core.words import fixed, join_some
from envcoder_bench.report.certainty import first_place, nothing_learnt, verdict
from envcoder_bench.report.page import charts, shell
from envcoder_bench.report.page.ranking import fitness_decimals, ranking_values
from envcoder_bench.report.page.shell import changes
from envcoder_bench.results.pairs import Pairs
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.rows import SKIPPED

if TYPE_CHECKING:
    import pandas as pd

MOST_SOURCE = 200_000  # characters of a source on the page
MOST_COLOURED = 40  # sources in colour, those of the first rows: the lexer takes most of the time of a long page


@dataclass(frozen=True)
class PageCandidate:
    """A candidate on the page.

    Attributes:
        file: where its file was.
        source: the text of its file; None if it is not known.
        facts: further lines of its description by title, such as the functions that are compiled.
        against: name and text of the file that it is compared with; None for no comparison.
        remarks: on its reward.
    """

    name: str
    file: str
    source: str | None
    facts: Mapping[str, str] = field(default_factory=dict)
    against: tuple[str, str] | None = None
    remarks: Sequence[str] = ()


@dataclass(frozen=True)
class PageEpisode:
    """An episode on the page.

    Attributes:
        mp4: the video; None if there is none.
        summary: one line beneath it, such as its fitness.
        times: seconds.
        lines: values at these times by name; the first one is the fitness so far.
        seconds: the length of the video.
        poster: a JPEG file, shown before the video is played.
    """

    name: str
    mp4: bytes | None
    summary: str
    times: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    seconds: float = 0.0
    poster: bytes | None = None


@dataclass(frozen=True)
class PageVideos:
    """The videos of a page.

    Attributes:
        note: what is said about them, or why there are none.
    """

    episodes: Sequence[PageEpisode] = ()
    note: str = ""


@dataclass(frozen=True)
class RunPage:
    """The content of a page.

    Attributes:
        facts: short facts for the head of the page.
        curves, components, step_fitness: tables as ``read_curves`` returns them; None for a run without any.
        how: how it was run, by title.
        command: the command that repeats it.
        sections: further sections.
        lead: the first paragraphs; without any, the verdict of the run.
        pairs: the differences of all pairs; None if they are not known.
        best: whether the run has a best candidate, see ``ranking_values``.
        final: the iteration of the final evaluation; None if it is not that of all candidates.
        scores: of a search, by which its candidates are ranked, by name.
        folder: the run's folder, for commands.
    """

    title: str
    fitness_meaning: str
    ranked: Sequence[Ranked]
    candidates: Sequence[PageCandidate]
    facts: Sequence[str] = ()
    curves: pd.DataFrame | None = None
    components: pd.DataFrame | None = None
    step_fitness: pd.DataFrame | None = None
    videos: PageVideos = PageVideos()
    how: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    sections: Sequence[shell.Section] = ()
    lead: Sequence[str] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    folder: str = "RUN"
    pairs: Pairs | None = None
    best: bool = True
    final: int | None = None


def render_page(run: RunPage) -> str:
    """Return the page as HTML."""
    anchors = {row.candidate: f"candidate-{k}" for k, row in enumerate(run.ranked)}
    sources = {candidate.name: candidate for candidate in run.candidates}
    data = _chart_data(run, sources)
    lead = [*(run.lead or _lead(run)), f"Fitness: {run.fitness_meaning}"]
    return shell.render(
        "report/page/run.html",
        run.title,
        lead,
        run.facts,
        data,
        run=run,
        ranking=ranking_values(run.ranked, anchors, run.scores, data["speed"] and data["speed"]["target"], run.best),
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
    """Return the verdict of the run as sentences, and whether nothing has been learned."""
    candidates = [row for row in run.ranked if row.rank is not None and not row.baseline]
    if not candidates:
        return ["No candidate has a fitness."]
    lines = verdict(run.ranked, run.pairs, run.folder)
    if not first_place(run.ranked):  # how sure is unknown
        decimals = fitness_decimals(run.ranked)
        best = [row.candidate for row in candidates if row.rank == candidates[0].rank]  # equals share the first place
        words = f"best candidate: {best[0]}" if len(best) == 1 else f"best candidates: {join_some(best)}"
        lines = [f"{words}, {fixed(candidates[0].fitness, decimals)}", *lines]
    warning = nothing_learnt(run.ranked, folder=run.folder)
    return [*lines, *([warning] if warning else [])]


def _details(row: Ranked, candidate: PageCandidate, coloured: bool) -> dict[str, Any]:
    """Return a candidate's facts, faults, differences and source for the template."""
    faults = row.faults if row.status != SKIPPED else ()
    name = Path(candidate.file).name
    lines = {fault.line for fault in faults if fault.line and name and Path(fault.file).name == name}
    source = candidate.source
    return {
        "facts": {**_results(row), **candidate.facts, "file": candidate.file},
        "errors": [*map(str, faults)],
        "remarks": candidate.remarks,
        "against": candidate.against and candidate.against[0],
        "changes": changes(candidate.against[1], source) if source and candidate.against else None,
        "source": None if source is None else shell.code(source[:MOST_SOURCE], lines, coloured),
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
    if row.hacked:
        facts["hacked?"] = row.hacked
    if row.unstable_resets:
        facts["unstable physics"] = f"{row.unstable_resets:,} of {row.training_episodes:,} training episodes"
    return facts


# the numbers that the page's script draws


def _chart_data(run: RunPage, sources: Mapping[str, PageCandidate]) -> dict[str, Any]:
    """Return all numbers that the page's script draws."""
    trained = set() if run.curves is None else set(run.curves["candidate"])
    lines = None if run.curves is None else charts.curves(run.curves, run.final)
    trained.update(charts.add_untrained(lines, run.ranked))
    order = [row.candidate for row in run.ranked]
    return {
        "candidates": charts.candidates(run.ranked, trained),
        "curves": lines,
        "pair": charts.first_pair(run.ranked),
        "folder": run.folder,
        "pairs": None if run.pairs is None else charts.pairs(run.ranked, run.pairs, run.folder),
        "components": None if run.components is None else charts.components(run.components, order),
        "speed": None if run.curves is None else charts.speed(run.curves, run.ranked),
        "step_fitness": None if run.step_fitness is None else charts.step_fitness(run.step_fitness),
        "functions": [shell.function_lines((name in sources and sources[name].source) or "") for name in order],
        "videos": _videos(run.videos),
    }


def _videos(shown: PageVideos) -> dict[str, Any] | None:
    """Return the episodes with their videos, and the values along each; None without any."""
    if not shown.episodes:
        return None
    episodes = [
        {
            "name": visible(episode.name),
            "mp4": None if episode.mp4 is None else base64.b64encode(episode.mp4).decode(),
            "length_s": episode.seconds,
            "poster": None if episode.poster is None else base64.b64encode(episode.poster).decode(),
            "summary": visible(episode.summary),
            "times": [round(t, 4) for t in episode.times],
            "lines": [
                {"name": visible(name), "values": list(map(shell.plain_number, values))}
                for name, values in episode.lines.items()
            ],
        }
        for episode in shown.episodes
    ]
    end = max(float(episode.times[-1]) for episode in shown.episodes)
    return {"end_s": end, "episodes": episodes}
