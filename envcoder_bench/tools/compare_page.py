"""The page of a comparison of runs, with the parts of a run's page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from envcoder_bench.report.curves import read_curves
from envcoder_bench.report.html import table, text
from envcoder_bench.report.page import render_page
from envcoder_bench.report.page_content import PageCandidate, PageSection, RunPage
from envcoder_bench.tools.compare import Comparison, full_name, notes, shared_table, unlearnt

if TYPE_CHECKING:
    import pandas as pd


def comparison_page(comparison: Comparison) -> str:
    """Return the comparison as one HTML file."""
    runs = comparison.runs
    first = next(iter(runs.values()))
    return render_page(
        RunPage(
            title=f"{first.cfg.task.name}: comparison of {len(runs)} runs",
            fitness_meaning=comparison.fitness_meaning,
            ranked=comparison.ranked,
            candidates=_candidates(comparison),
            facts=list(runs),
            curves=_logs(comparison, lambda folder: folder.curves),
            components=_logs(comparison, lambda folder: folder.components),
            sections=[*_shared(comparison), *_settings(comparison)],
            how={label: str(run.folder.path) for label, run in runs.items()},
            command="",
        )
    )


def _candidates(comparison: Comparison) -> list[PageCandidate]:
    first = next(iter(comparison.runs.values()))
    found = []
    for label, run in comparison.runs.items():
        for name, source in run.sources.items():
            other = first.sources.get(name)
            against = None
            if other is not None and other.source != source.source:
                against = (full_name(next(iter(comparison.runs)), name), other.source)
            found.append(PageCandidate(full_name(label, name), source.file, source.source, {"run": label}, against))
    return found


def _logs(comparison: Comparison, path: Callable[[Any], Any]) -> pd.DataFrame | None:
    import pandas as pd

    found = []
    for label, run in comparison.runs.items():
        if path(run.folder).is_file():
            own = read_curves(path(run.folder))
            own["candidate"] = [full_name(label, name) for name in own["candidate"]]
            found.append(own)
    return pd.concat(found, ignore_index=True) if found else None


def _shared(comparison: Comparison) -> list[PageSection]:
    if not comparison.shared:
        return []
    header, rows = shared_table(comparison)
    lines = [*notes(comparison), *(f"{label}: {words}" for label, words in unlearnt(comparison).items())]
    explained = "".join(f'<p class="note">{text(line)}</p>' for line in lines)
    kinds = ["name", *["number"] * (len(header) - 1)]
    return [PageSection("shared-section", "In several runs", _wide(table(header, rows, kinds)) + explained)]


def _settings(comparison: Comparison) -> list[PageSection]:
    rows = [[key, *values] for key, values in comparison.settings.items()]
    if not rows:
        return []
    header = ["", *comparison.runs]
    html = _wide(table(header, rows, ["name", *[""] * len(comparison.runs)]))
    return [PageSection("settings-section", "Different settings", html)]


def _wide(html: str) -> str:
    return f'<div class="wide">{html}</div>'
