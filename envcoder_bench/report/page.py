"""The page of a run: ranking, videos, curves, candidates and how it was run, in one file that needs no other.

Everything from candidates is escaped. The content security policy allows only the page's own script, by its hash, and
no request.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from envcoder_bench.report import page_data
from envcoder_bench.report.certainty import nothing_learnt, some
from envcoder_bench.report.html import fact_list, text, visible
from envcoder_bench.report.page_candidates import render_candidates
from envcoder_bench.report.page_content import RunPage
from envcoder_bench.report.page_ranking import fitness_decimals, render_ranking
from envcoder_bench.report.words import fixed

PAGE = "report.html"
ASSETS = Path(__file__).parent / "assets"


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def render_page(run: RunPage) -> str:
    """Return the page as HTML."""
    script = f"/*\n{_asset('uplot-LICENSE.txt')}*/\n{_asset('uplot.js')}\n{_asset('page.js')}"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:;"
        " media-src blob:; base-uri 'none'; form-action 'none'"
    )
    data = _data(run)
    anchors = {row.candidate: f"candidate-{k}" for k, row in enumerate(run.ranked)}
    ranking = render_ranking(run.ranked, anchors, run.scores, run.folder) if run.ranked else ""
    sections = [
        *((own.anchor, own.title, own.html) for own in run.sections if own.first),
        ("ranking-section", "Ranking", ranking),
        *((own.anchor, own.title, own.html) for own in run.sections if not own.first),
        ("videos-section", "Videos", _videos(run)),
        ("curves-section", "Learning curves", _curves(data)),
        ("components-section", "Reward components", _components(data)),
        ("candidates-section", "Candidates", render_candidates(run, anchors)),
        ("how-section", "How it was run", _how(run)),
    ]
    shown = [(anchor, title, body) for anchor, title, body in sections if body]
    links = "".join(f'<a href="#{anchor}">{text(title)}</a>' for anchor, title, _ in shown)
    body = "\n".join(f'<section id="{anchor}"><h2>{text(t)}</h2>{html}</section>' for anchor, t, html in shown)
    facts = "".join(f"<span>{text(fact)}</span>" for fact in run.facts)
    lead = _lead(run) if run.lead is None else run.lead
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width">',
            '<link rel="icon" href="data:,">',
            f"<title>{text(run.title)}</title><style>{_asset('uplot.css')}\n{_asset('page.css')}</style></head><body>",
            f"<header><div><h1>{text(run.title)}</h1>{lead}<p>Fitness: {text(run.fitness_meaning)}</p>",
            f'<div class="facts">{facts}</div></div></header>',
            f"<nav><div>{links}</div></nav><main>{body}</main>",
            "<footer>EnvCoderBench. Charts: uPlot 1.6.32, © 2022 Leon Sorokin, MIT licence.</footer>",
            f'<script type="application/json" id="data">{page_data.script_json(data)}</script>',
            f"<script>{script}</script></body></html>\n",
        ]
    )


def _data(run: RunPage) -> dict[str, Any]:
    trained = set() if run.curves is None else set(run.curves["candidate"])
    curves = None if run.curves is None else page_data.curves(run.curves)
    trained.update(page_data.add_untrained(curves, run.ranked))
    parts = None
    if run.components is not None:
        parts = page_data.components(run.components, [row.candidate for row in run.ranked])
    return {
        "candidates": page_data.candidates(run.ranked, trained),
        "curves": curves,
        "components": parts,
        "videos": _video_data(run),
    }


def _video_data(run: RunPage) -> dict[str, Any] | None:
    if not run.videos.episodes:
        return None
    number = page_data.plain_number
    episodes = [
        {
            "name": visible(own.name),
            "mp4": None if own.mp4 is None else base64.b64encode(own.mp4).decode(),
            "summary": visible(own.summary),
            "times": [round(t, 4) for t in own.times],
            "lines": [{"name": visible(name), "values": list(map(number, line))} for name, line in own.lines.items()],
        }
        for own in run.videos.episodes
    ]
    end = max(float(own.times[-1]) for own in run.videos.episodes)
    return {"length_s": run.videos.seconds, "end_s": end, "episodes": episodes}


def _lead(run: RunPage) -> str:
    own = [row for row in run.ranked if row.rank is not None and not row.baseline]
    if not own:
        return '<p class="lead">No candidate has a fitness.</p>'
    decimals = fitness_decimals(run.ranked)
    best = [row.candidate for row in own if row.rank == own[0].rank]
    words = f"Best candidate: {best[0]}" if len(best) == 1 else f"Best candidates, equal: {some(best)}"
    words += f", fitness {fixed(own[0].fitness, decimals)}"
    others = [row for row in run.ranked if row.baseline and row.rank is not None]
    versus = ", ".join(f"{row.candidate} {fixed(row.fitness, decimals)}" for row in others)
    warning = nothing_learnt(run.ranked, folder=run.folder)
    return f'<p class="lead">{text(words + (f" (baselines: {versus})" if versus else ""))}.</p>' + (
        f"<p>{text(warning)}</p>" if warning else ""
    )


def _videos(run: RunPage) -> str:
    note = f'<p class="note">{text(run.videos.note)}</p>' if run.videos.note else ""
    if not run.videos.episodes:
        return note
    speeds = "".join(f'<option value="{x}"{" selected" * (x == 1)}>{x}x</option>' for x in (0.25, 0.5, 1, 2, 4))
    return (
        '<div class="bar"><button type="button" id="play" class="main">▶ Play</button><button type="button" '
        'id="restart">↺ Restart</button><input type="range" id="scrub" min="0" max="1" step="any" value="0" '
        'aria-label="time"><span class="clock" id="clock">0.0 s</span><select id="speed" aria-label="speed">'
        f'{speeds}</select></div><div class="videos" id="videos"></div>{note}'
    )


def _curves(data: Mapping[str, Any]) -> str:
    if not data["curves"] or not data["curves"]["metrics"]:
        return ""
    names = {"fitness": "fitness", "kl": "KL divergence"}
    options = "".join(
        f'<option value="{key}">{names.get(key, key.replace("_", " "))}</option>' for key in data["curves"]["metrics"]
    )
    return (
        f'<div class="bar"><select id="metric" aria-label="quantity">{options}</select><button type="button" '
        'id="curves-best">the best</button><button type="button" id="curves-all">all</button><button type="button" '
        'id="curves-none">none</button></div><div class="chart" id="curves-chart"></div><div class="chips" '
        'id="curves-chips"></div><p class="note">Means over the seeds; bands: the range of the seeds. Drag to zoom in,'
        " double-click to zoom out.</p>"
    )


def _components(data: Mapping[str, Any]) -> str:
    if not data["components"]:
        return ""
    options = "".join(f'<option value="{k}">{text(own["name"])}</option>' for k, own in enumerate(data["components"]))
    return (
        f'<div class="bar"><select id="components-of" aria-label="candidate">{options}</select></div>'
        '<div class="chart" id="components-chart"></div><div class="chips" id="components-chips"></div>'
        '<p class="note">Means per environment and control step in training, of all seeds.</p>'
    )


def _how(run: RunPage) -> str:
    if not run.how and not run.command:
        return ""
    command = f"<h3>To repeat it</h3><pre>{text(run.command)}</pre>" if run.command else ""
    return fact_list(run.how) + command
