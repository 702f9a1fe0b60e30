"""The report of a grid: summary.csv, statistical_tests.csv, pictures and report.html."""

import logging
from pathlib import Path
from typing import Any

from envcoder_bench.core.files import write_atomic
from envcoder_bench.grid.inputs import Inputs
from envcoder_bench.grid.page import write_grid_page
from envcoder_bench.grid.pictures import draw_pictures
from envcoder_bench.grid.statistics import (
    RANKING_COLUMNS,
    SUMMARY_COLUMNS,
    TEST_COLUMNS,
    as_csv,
    compare,
    rank_policies,
    summarize,
)
from envcoder_bench.grid.videos import record_videos
from envcoder_bench.report.page import PAGE

SUMMARY, RANKING, TESTS = "summary.csv", "ranking.csv", "statistical_tests.csv"
log = logging.getLogger(__name__)


def write_report(
    inputs: Inputs, folder: Path, rows: list[dict[str, Any]], videos: int = 0, seconds: float = 0.0
) -> Path:
    """Write all files of a complete grid; return the page."""
    summary = summarize(rows)
    write_atomic(folder / SUMMARY, as_csv(SUMMARY_COLUMNS, summary))
    write_atomic(folder / RANKING, as_csv(RANKING_COLUMNS, rank_policies(rows)))
    tests = compare(rows)
    if len(inputs.policies) > 1:
        write_atomic(folder / TESTS, as_csv(TEST_COLUMNS, tests))
    draw_pictures(rows, inputs.arenas, folder)
    note = ""
    try:
        note = record_videos(inputs, folder, videos)
    except Exception as error:  # a picture must not cost a result
        log.warning("videos: %s", error, exc_info=True)
        note = f"There are no videos: {error}."
    page = folder / PAGE
    write_atomic(page, write_grid_page(inputs, folder, summary, tests, note, seconds))
    return page


def render_summary(rows: list[dict[str, Any]]) -> str:
    """Return the summary as a table for a terminal."""
    header = ["policy", "terrain", "episodes", "completed", "fell", "flipped", "progress [m]", "zone", "stability"]
    lines = [
        [
            row["policy"], row["environment"], str(row["episodes"]), f"{100 * row['completion_rate']:.0f} %",
            f"{100 * row['fall_rate']:.0f} %", f"{100 * row['flip_rate']:.0f} %", f"{row['progress_mean']:.1f}",
            f"{row['zone_reached_mean']:.1f}", f"{row['stability_score_mean']:.2f}",
        ]
        for row in summarize(rows)
    ]  # fmt: skip
    ranked = [[str(row["rank"]), row["policy"], f"{row['progress']:.1f}"] for row in rank_policies(rows)]
    text = _columns([header, *lines], 2)
    return text if len(ranked) < 3 else f"{text}\n\n" + _columns([["rank", "policy", "progress [m]"], *ranked], 2)


def _columns(lines: list[list[str]], left: int) -> str:
    """Align the cells of lines, the first ``left`` columns to the left."""
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    shown = [
        "  ".join(
            cell.ljust(w) if k < left else cell.rjust(w) for k, (cell, w) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    ]
    return "\n".join(shown)
