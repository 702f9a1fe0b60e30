"""The report of a grid: summary.csv, ranking.csv, statistical_tests.csv, pictures and the page, report.html."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.words import aligned, counted, duration, fixed, number
from envcoder_bench.grid.batch import Batch, Scene, Spec
from envcoder_bench.grid.inputs import Inputs
from envcoder_bench.grid.part import Part
from envcoder_bench.grid.pictures import PICTURES, draw_pictures
from envcoder_bench.grid.protocol import ENDS
from envcoder_bench.grid.tables import (
    RANKING_COLUMNS,
    SUMMARY_COLUMNS,
    TEST_COLUMNS,
    as_csv,
    compare,
    rank_policies,
    summarize,
)
from envcoder_bench.report.page import shell
from envcoder_bench.video.recording import Episode, Recording
from envcoder_bench.video.render import Look, NoVideo, missing, render

SUMMARY, RANKING, TESTS = "summary.csv", "ranking.csv", "statistical_tests.csv"
log = logging.getLogger(__name__)

Table = tuple[Sequence[str], list[list[str]], Sequence[str]]  # header, rows, CSS classes of the columns
Row = Mapping[str, Any]


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
        note = f"No videos: {error}."
    page = folder / shell.PAGE
    write_atomic(page, render_page(inputs, folder, summary, tests, note, seconds))
    return page


def render_page(
    inputs: Inputs, folder: Path, summary: Sequence[Row], tests: Sequence[Row], note: str, seconds: float
) -> str:
    """Return the page of a grid's folder, with its pictures and videos.

    Args:
        summary, tests: as ``tables`` returns them.
        note: about the videos.
        seconds: duration of the episodes; 0 if unknown.
    """
    settings = inputs.settings
    facts = [f"{settings.episodes} episodes of each pair, {settings.seconds:g} s at most"]
    facts += [f"evaluated in {duration(seconds)}"] if seconds else []
    policies = counted(len(inputs.policies), "policy", "policies")
    cells = [[policy.name, policy.kind, policy.layout.name, policy.file] for policy in inputs.policies]
    return shell.render(
        "grid/page.html",
        f"{inputs.robot.name}: {policies} on {counted(len(inputs.arenas), 'terrain')}",
        facts=facts,
        summary=_summary_table(summary),
        tests=_test_table(tests),
        pictures=[
            shell.Section(name.split(".")[0], title, shell.parts().picture((folder / name).read_bytes(), title))
            for name, title in PICTURES.items()
        ],
        videos={path.stem: path.read_bytes() for path in sorted((folder / "videos").glob("*.mp4"))},
        note=note,
        policies=(("policy", "file", "layout", "path"), cells, [""] * 4),
        zones=_zone_table(inputs),
    )


def _summary_table(rows: Sequence[Row]) -> Table:
    header = ("policy", "terrain", "completed", "95 %", "fell", "flipped", "progress [m]", "zone", "stability", "m/s",
              "kJ")  # fmt: skip
    cells = [
        [
            *_outcome(row)[:3],
            f"{100 * row['completion_rate_low']:.0f} to {100 * row['completion_rate_high']:.0f}",
            *_outcome(row)[3:],
            _spread(row, "progress", 1),
            f"{row['zone_reached_mean']:.1f}",
            _spread(row, "stability_score", 2),
            f"{row['mean_velocity_mean']:.2f}",
            f"{row['total_energy_mean'] / 1000:.1f}",
        ]
        for row in rows
    ]
    return header, cells, ["", "", *["number"] * (len(header) - 2)]


def _outcome(row: Row) -> list[str]:
    """Return policy, terrain, and the shares of episodes that were completed, that ended in a fall, and in a flip."""
    rates = [f"{100 * row[name]:.0f} %" for name in ("completion_rate", "fall_rate", "flip_rate")]
    return [row["policy"], row["environment"], *rates]


def _spread(row: Row, name: str, decimals: int) -> str:
    spread = row[f"{name}_std"]
    return f"{row[f'{name}_mean']:.{decimals}f}" + ("" if spread is None else f" ± {spread:.{decimals}f}")


def _test_table(rows: Sequence[Row]) -> Table:
    cells = [
        [
            row["environment"],
            row["metric"],
            f"{row['policy_a']}, {row['policy_b']}",
            f"{number(row['a'], 3)}, {number(row['b'], 3)}",
            row["test"],
            *("" if row[name] is None else number(row[name], 2) for name in ("p", "p_holm")),
            "" if row["cohens_d"] is None else fixed(row["cohens_d"], 2),
        ]
        for row in rows
    ]
    header = ("terrain", "metric", "policies", "values", "test", "p", "p (Holm)", "Cohen's d")
    return header, cells, ("", "", "", "number", "", "number", "number", "number")


def _zone_table(inputs: Inputs) -> Table:
    cells = [
        [
            arena.name,
            str(k),
            zone.type,
            f"{zone.size:g}",
            ", ".join(f"{value:g}" for value in zone.difficulty),
            f"{zone.friction:g}",
            f"{zone.drag:g}",
            "" if zone.count is None else str(zone.count),
        ]
        for arena in inputs.arenas
        for k, zone in enumerate(arena.zones, 1)
    ]
    header = ("terrain", "zone", "type", "length [m]", "difficulty [m]", "friction", "drag", "count")
    return header, cells, ["", "number", "", *["number"] * 5]


def render_summary(rows: list[dict[str, Any]]) -> str:
    """Return the summary as a table for a terminal."""
    header = ["policy", "terrain", "episodes", "completed", "fell", "flipped", "progress [m]", "zone", "stability"]
    lines = []
    for row in summarize(rows):
        policy, arena, *rates = _outcome(row)
        means = f"{row['progress_mean']:.1f}", f"{row['zone_reached_mean']:.1f}", f"{row['stability_score_mean']:.2f}"
        lines.append([policy, arena, str(row["episodes"]), *rates, *means])
    ranked = [[str(row["rank"]), row["policy"], f"{row['progress']:.1f}"] for row in rank_policies(rows)]
    text = aligned([header, *lines], range(2, len(header)), ruled=False)
    if len(ranked) > 2:
        text += ["", *aligned([["rank", "policy", "progress [m]"], *ranked], (2,), ruled=False)]
    return "\n".join(text)


# videos


VIDEOS = "videos"
_HEIGHT_FIELD, _BOX = 1, 6  # MuJoCo's numbers of the types
_LIGHTER, _DARKER = (0.50, 0.52, 0.56, 1.0), (0.38, 0.41, 0.45, 1.0)


def record_videos(inputs: Inputs, folder: Path, count: int) -> str:
    """Write ``videos/<episode>.mp4`` of the first ``count`` episodes of each pair.

    Returns:
        A note for the page, e.g. why it does not have videos.
    """
    if count < 1:
        return ""
    reason = missing()
    if reason:
        return f"No videos: {reason}."
    # replay the episodes, because the grid's processes did not keep states
    specs = [spec for spec in inputs.specs if spec.number < count]
    log.info("drawing videos of %s episodes: this may take minutes without a GPU", len(specs))
    seconds, fps = inputs.settings.video.seconds, inputs.settings.video.fps
    with tempfile.TemporaryDirectory(prefix="envcoder_bench_grid_") as name:
        part = Part(inputs, specs, Path(name), "mujoco_cpu", "cpu")
        recording = Recording(
            inputs.robot.name, inputs.settings.dt, inputs.settings.steps, summed=True, same_start=False
        )
        models = [_replay(recording, part.scene, wave, inputs, seconds) for wave in part.waves]
        files = [folder / VIDEOS / f"{episode.name}.mp4" for episode in recording.episodes]
        try:
            lengths = render(
                recording, models[0], files, Look(width=320, height=240, fps=fps, seconds=seconds, fast=True)
            )
        except NoVideo as error:
            return f"No videos: {error}."
    episodes = f"episode{'s' * (count > 1)}"
    seconds_shown = number(min(*lengths, seconds), 2)
    return (
        f"The first {seconds_shown} s of the first {episodes} of each pair, replayed in MuJoCo on the"
        " CPU; the number is the distance walked, m."
    )


def _replay(recording: Recording, scene: Scene, specs: Sequence[Spec], inputs: Inputs, seconds: float) -> bytes:
    """Add episodes to a recording; return the model for their pictures."""
    from envcoder_bench.sim.rendering import brightened, packed_model

    batch = Batch(scene, specs)
    source = batch.sim.pose_source()  # pyright: ignore[reportAttributeAccessIssue]
    steps = min(inputs.settings.steps, round(seconds * inputs.settings.control_hz))
    poses = [source.qpos.copy()]
    for _ in range(steps):
        batch.advance(1)
        poses.append(source.qpos.copy())
    frames = np.stack(poses)
    lengths, ends = batch.episodes.state["steps"].tolist(), batch.episodes.end.tolist()
    for k, spec in enumerate(specs):
        walked = np.diff(frames[: lengths[k] + 1, k, 0])
        name = inputs.named(spec)["episode_id"]
        recording.episodes.append(
            Episode(name, spec.number, frames[: lengths[k] + 1, k], walked, np.zeros_like(walked), ended=ENDS[ends[k]])
        )
    # neighbouring boxes differ in colour, so that steps can be seen
    model = brightened(source.model)
    boxes = np.flatnonzero(model.geom_type == _BOX)
    model.geom_rgba[boxes[::2]], model.geom_rgba[boxes[1::2]] = _LIGHTER, _DARKER
    model.geom_rgba[model.geom_type == _HEIGHT_FIELD] = _LIGHTER
    return packed_model(model)
