"""The candidates on the page of a run: facts, faults, differences and sources."""

import difflib
from collections.abc import Mapping
from pathlib import Path

from envcoder_bench.report.highlight import code
from envcoder_bench.report.html import difference, fact_list, text
from envcoder_bench.report.page_content import PageCandidate, RunPage
from envcoder_bench.report.ranking import Ranked
from envcoder_bench.report.results import OK, SKIPPED
from envcoder_bench.report.table import split_place

MOST_DIFF_LINES = 1000  # of sources that are compared: the time grows with their square
MOST_SOURCE = 200_000  # characters of a source on the page


def render_candidates(run: RunPage, anchors: Mapping[str, str]) -> str:
    """Return the candidates as HTML in the order of the ranking; ``anchors`` are their ids by name."""
    known = {own.name: own for own in run.candidates}
    parts = []
    for row in run.ranked:
        own = known.get(row.candidate) or PageCandidate(row.candidate, "", None)
        kind = "ok" if row.status == OK else "failed" if row.errors else ""
        tags = '<span class="tag">baseline</span>' if row.baseline else ""
        tags += f'<span class="tag {kind}">{text(row.status)}</span>'
        body = [fact_list({**_results(row), **own.facts, "file": own.file})]
        lines: set[int] = set()
        for error in row.errors if row.status != SKIPPED else ():
            place, message = split_place(error)
            file, _, line = place.rpartition(":")
            if line.isdigit() and own.file and Path(file).name == Path(own.file).name:
                lines.add(int(line))
            body.append(f'<p class="error">{text(f"{place}: {message}" if place else message)}</p>')
        if own.source is not None:
            shown = own.source[:MOST_SOURCE]
            if own.against is not None:
                body += [f"<h3>Differences to {text(own.against[0])}</h3>", _diff(own, own.against)]
            body += ["<h3>Source</h3>", code(shown, lines)]
        name = text(row.candidate)
        parts.append(
            f'<details class="candidate" id="{anchors[row.candidate]}"><summary>{name}{tags}</summary>'
            + "".join(body)
            + "</details>"
        )
    return "".join(parts)


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


def _diff(own: PageCandidate, against: tuple[str, str]) -> str:
    assert own.source is not None
    before, after = against[1].splitlines(), own.source.splitlines()
    if max(len(before), len(after)) > MOST_DIFF_LINES or len(own.source) > MOST_SOURCE:
        return f'<p class="note">They are not compared: one has more than {MOST_DIFF_LINES:,} lines.</p>'
    lines = list(difflib.unified_diff(before, after, against[0], own.name, lineterm=""))
    return difference(lines) if lines else '<p class="note">There are none.</p>'
