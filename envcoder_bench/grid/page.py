"""The page of a grid, report.html: one file that needs no other."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envcoder_bench.grid.inputs import Inputs
from envcoder_bench.grid.pictures import PICTURES
from envcoder_bench.report.html import picture, table, text
from envcoder_bench.report.page import ASSETS
from envcoder_bench.report.progress import duration
from envcoder_bench.report.words import counted

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
)
_VIDEO_STYLE = (
    ".films{display:flex;flex-wrap:wrap;gap:12px}.films figure{margin:0}.films video{width:320px;display:block}"
)


def render_grid_page(
    inputs: Inputs,
    summary: Sequence[Mapping[str, Any]],
    tests: Sequence[Mapping[str, Any]],
    pictures: Mapping[str, bytes],
    videos: Mapping[str, bytes],
    note: str,
    facts: Sequence[str],
) -> str:
    """Return the page as HTML.

    Args:
        summary, tests: as ``statistics`` returns them.
        pictures: PNG files by name.
        videos: mp4 files by episode.
        note: about the videos.
    """
    sections = [
        ("summary", "Summary", _summary(summary)),
        *((name.split(".")[0], title, picture(pictures[name], title)) for name, title in PICTURES.items()),
        ("tests", "Tests between policies", _tests(tests)),
        ("videos", "Videos", _videos(videos, note)),
        ("how", "How it was run", _how(inputs)),
    ]
    shown = [(anchor, title, body) for anchor, title, body in sections if body]
    links = "".join(f'<a href="#{anchor}">{text(title)}</a>' for anchor, title, _ in shown)
    body = "\n".join(f'<section id="{anchor}"><h2>{text(t)}</h2>{html}</section>' for anchor, t, html in shown)
    policies = counted(len(inputs.policies), "policy", "policies")
    title = f"{inputs.robot.name}: {policies} on {counted(len(inputs.arenas), 'terrain')}"
    style = (ASSETS / "page.css").read_text(encoding="utf-8") + _VIDEO_STYLE
    spans = "".join(f"<span>{text(fact)}</span>" for fact in facts)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">',
            f"<title>{text(title)}</title><style>{style}</style></head><body>",
            f'<header><div><h1>{text(title)}</h1><div class="facts">{spans}</div></div></header>',
            f"<nav><div>{links}</div></nav><main>{body}</main>",
            "<footer>EnvCoderBench</footer></body></html>\n",
        ]
    )


def write_grid_page(
    inputs: Inputs,
    folder: Path,
    summary: Sequence[Mapping[str, Any]],
    tests: Sequence[Mapping[str, Any]],
    note: str,
    seconds: float,
) -> str:
    """Return the page of a grid's folder, with its pictures and videos."""
    pictures = {name: (folder / name).read_bytes() for name in PICTURES}
    videos = {path.stem: path.read_bytes() for path in sorted((folder / "videos").glob("*.mp4"))}
    episodes = inputs.settings["episodes"]
    facts = [f"{episodes} episodes of each pair, {inputs.settings['seconds']:g} s at most"]
    if seconds:
        facts.append(f"evaluated in {duration(seconds)}")
    return render_grid_page(inputs, summary, tests, pictures, videos, note, facts)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _summary(rows: Sequence[Mapping[str, Any]]) -> str:
    header = [
        "policy",
        "terrain",
        "completed",
        "95 %",
        "fell",
        "flipped",
        "progress [m]",
        "zone",
        "stability",
        "m/s",
        "kJ",
    ]
    cells = [
        [
            row["policy"],
            row["environment"],
            _percent(row["completion_rate"]),
            f"{100 * row['completion_rate_low']:.0f} to {100 * row['completion_rate_high']:.0f}",
            _percent(row["fall_rate"]),
            _percent(row["flip_rate"]),
            _spread(row, "progress", 1),
            f"{row['zone_reached_mean']:.1f}",
            _spread(row, "stability_score", 2),
            f"{row['mean_velocity_mean']:.2f}",
            f"{row['total_energy_mean'] / 1000:.1f}",
        ]
        for row in rows
    ]
    return table(header, cells, ["", "", *["number"] * (len(header) - 2)])


def _spread(row: Mapping[str, Any], name: str, decimals: int) -> str:
    spread = row[f"{name}_std"]
    return f"{row[f'{name}_mean']:.{decimals}f}" + ("" if spread is None else f" ± {spread:.{decimals}f}")


def _tests(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    header = ["terrain", "metric", "policies", "values", "test", "p", "p (Holm)", "Cohen's d"]

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    cells = [
        [
            row["environment"],
            row["metric"],
            f"{row['policy_a']}, {row['policy_b']}",
            f"{row['a']:.3g}, {row['b']:.3g}",
            row["test"],
            number(row["p"], ".2g"),
            number(row["p_holm"], ".2g"),
            number(row["cohens_d"], ".2f"),
        ]
        for row in rows
    ]
    return table(header, cells, ["", "", "", "number", "", "number", "number", "number"])


def _videos(videos: Mapping[str, bytes], note: str) -> str:
    films = "".join(
        f'<figure><video controls muted loop preload="metadata" src="data:video/mp4;base64,'
        f'{base64.b64encode(film).decode()}"></video><figcaption>{text(name)}</figcaption></figure>'
        for name, film in videos.items()
    )
    said = f'<p class="note">{text(note)}</p>' if note else ""
    return (f'<div class="films">{films}</div>' if films else "") + said


def _how(inputs: Inputs) -> str:
    rows = [[own.name, own.kind, own.layout.name, own.file] for own in inputs.policies]
    zones = [
        [
            arena.name,
            str(k + 1),
            zone.type,
            f"{zone.size:g}",
            ", ".join(f"{value:g}" for value in zone.difficulty),
            f"{zone.friction:g}",
            f"{zone.drag:g}",
            "" if zone.count is None else str(zone.count),
        ]
        for arena in inputs.arenas
        for k, zone in enumerate(arena.zones)
    ]
    header = ["terrain", "zone", "type", "length [m]", "difficulty [m]", "friction", "drag", "count"]
    return (
        table(["policy", "file", "layout", "path"], rows, [""] * 4)
        + table(header, zones, ["", "number", "", *["number"] * 5])
        + "<p>Every figure of the protocol is in config.yaml.</p>"
    )
