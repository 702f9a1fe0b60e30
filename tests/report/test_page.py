"""The page of a run as text: escaping, its policy, and its size. tests/video/test_page_browser.py opens it."""

import base64
import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest
from page_fakes import HOSTILE, REMARK, SOURCE, HtmlPage, fake_page

from envcoder_bench.report.page import charts, run
from envcoder_bench.report.page.charts import components, first_pair, step_fitness
from envcoder_bench.report.page.run import PageVideos, render_page
from envcoder_bench.report.page.shell import code
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import Result


@pytest.fixture(scope="module")
def page():
    return render_page(fake_page(mp4=b"video"))


def test_hostile_texts_are_escaped(page):
    parsed = HtmlPage(page)
    assert [tag for tag, _ in parsed.tags].count("script") == 2  # data and code
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert not any(tag in ("img", "iframe", "object", "b") for tag, _ in parsed.tags)
    shown = "".join(parsed.text)
    for text in HOSTILE[:4]:
        assert text in shown
    assert "\u202e" not in page and "\\u202e" in page  # characters that turn the order around are shown as codes


def test_content_security_policy_allows_only_the_own_script(page):
    parsed = HtmlPage(page)
    policy = next(a["content"] for tag, a in parsed.tags if tag == "meta" and "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(parsed.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy and policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0] and "http" not in policy
    addresses = [a[key] for _, a in parsed.tags for key in ("src", "href") if key in a]
    assert all(address.startswith(("#", "data:,")) for address in addresses)


def test_data_cannot_close_its_script_tag(page):
    data = HtmlPage(page).scripts[0]
    assert "<" not in data and ">" not in data
    names = [own["name"] for own in json.loads(data)["candidates"]]
    assert HOSTILE[1] in names and names[0] == "human"


def test_only_sources_of_the_first_rows_are_coloured(page, monkeypatch):
    assert '<span class="k">def</span>' in page
    monkeypatch.setattr(run, "MOST_COLOURED", 0)
    plain = render_page(fake_page(mp4=b"video"))
    assert '<span class="k">def</span>' not in plain
    assert "".join(HtmlPage(plain).text) == "".join(HtmlPage(page).text)


def test_every_candidate_has_a_row_and_details(page):
    parsed = HtmlPage(page)
    anchors = {a["id"] for tag, a in parsed.tags if tag == "details"}
    links = {a["href"][1:] for tag, a in parsed.tags if tag == "a" and a["href"].startswith("#candidate-")}
    assert links == anchors and len(anchors) == 2 + 2 + len(HOSTILE)
    assert parsed.text.count(REMARK) == page.count("<li>") == 2 + len(HOSTILE)
    assert re.search(r'<td class="number" data-v="[0-9.]+">[0-9.,]+</td>', page), "sorted as a number"
    assert "1,998 env-steps" in page and "env-steps</button>" not in page, "no column where all have as many"
    assert '<span class="gd">-    return 0</span>' in page and '<span class="gi">+LIMIT = 0.5' in page


def test_error_line_is_marked():
    marked = re.findall(r'<span class="hll">.*', code(f"\n\n{SOURCE}", {9}))
    assert len(marked) == 1 and "onerror" in marked[0], "lines are counted as in the file"
    assert '<span class="hll">' in render_page(fake_page(names=("broken",)))


@pytest.mark.parametrize(
    "source",
    ["", "x", '"', "'''", '"""a\nb', "#", "\\", "def", "\0", "a\r\nb", "<", "&" * 50, "'\\" * 5000, "\"'" * 5000],
)
def test_source_text_is_preserved(source):
    shown = HtmlPage(re.sub('<span class="linenos">.*?</span>', "", code(source)))
    text = "".join(shown.text).replace("\\u0000", "\0").replace("\\u000d", "\r")
    assert text.rstrip("\n") == source
    assert {tag for tag, _ in shown.tags} <= {"div", "pre", "span"}


@pytest.mark.slow
def test_long_sources_are_cut_and_highlighted_in_seconds():
    assert "2 more lines in the file" in code("x = 1\n" * 3002)
    for unit in ("(", "a.", '"{', "f'{x", "'%("):  # what takes Python's lexer longest
        code((unit * 20_000)[:20_000])


def test_intervals_stay_within_the_bounds(page):
    """Fitness is from 0 to 1 here, and the intervals reach from -0.5 to 1.5."""
    titles = re.findall(r"<title>([^<]*), ([-\d.e]+) to ([-\d.e]+)</title>", page)
    assert titles and all(float(low) >= 0 and float(high) <= 1 for _, low, high in titles)


@pytest.mark.slow
def test_page_of_fifty_candidates_is_small():
    """Long sources, 200 points, 8 components, and five videos of 400 kB."""
    names = [f"candidate_{k:03d}" for k in range(50)]
    run = fake_page(names, seeds=1, mp4=b"v" * 400_000, points=60, components=8, source=SOURCE * 20)
    assert len(render_page(run)) < 15e6


@pytest.mark.parametrize("missing", ["curves", "components"])
def test_page_is_rendered_without_training_data(missing):
    import dataclasses

    run = dataclasses.replace(fake_page(), **{missing: None}, videos=PageVideos())
    assert "<h2>Ranking</h2>" in render_page(run) and "<h2>Videos" not in render_page(run)


@pytest.mark.parametrize("most", [10**6, 100])
def test_fitness_of_steps_adds_up_on_a_page_of_few_numbers(monkeypatch, most):
    """Of the last evaluation; bins are put together where there are too many, and their lengths may differ."""
    monkeypatch.setattr(charts, "MOST_NUMBERS", most)
    table = fake_page(names=("first", "bad"), seeds=2).step_fitness
    table.loc[table["step"] == 500, ["step", "seconds"]] = 507, 10.14
    earlier = table.assign(iteration=1, fitness=9.0)
    data = step_fitness(pd.concat([earlier, table]))
    ends = np.array(data["times"][0]) / 0.02
    assert list(data["of"]) == ["human", "unshaped", "first"] and len(ends) == (50 if most > 100 else 17)
    for (name, seed), rows in table.groupby(["candidate", "seed"]):
        shown = np.array(data["of"][name]["fitness"][str(seed)])
        total = (rows["fitness"] * np.diff(rows["step"], prepend=0)).sum()
        assert (shown * np.diff(ends, prepend=0)).sum() == pytest.approx(total, rel=1e-3) and total > 0
    assert data["of"]["human"]["active"] == {}, "all of its episodes last"


def test_best_candidate_and_human_are_compared_at_first():
    def pair(*names):
        return first_pair(rank([Result(name, 0, "ok", -k) for k, name in enumerate(names)]))

    assert [pair(*x.split()) for x in ("human a b", "a b human", "a b", "human a", "human unshaped")] == [
        (1, 0), (0, 2), (0, 1), (1, 0), (0, 1),
    ]  # fmt: skip


def test_components_are_means_of_the_seeds_in_the_order_of_the_ranking():
    table = fake_page(names=("first", "second"), seeds=2, points=3).components
    found = components(table, ["second", "no rows", "human"])
    assert [chart["name"] for chart in found["candidates"]] == ["human"]  # the last candidate failed, and has no rows
    assert found["shared"] == []
    means = table[table["candidate"] == "human"].groupby(["component", "env_steps"])["mean"].mean()
    for series in found["candidates"][0]["series"]:
        assert series["values"] == pytest.approx(means.loc[series["name"]].tolist(), rel=1e-4)
        assert len(series["values"]) == 3
    found = components(table, ["first", "unshaped", "human"])
    assert [chart["name"] for chart in found["candidates"]] == ["first", "unshaped", "human"]
    assert found["shared"] == ["part 0", "part 1", "part 2"], "first and human have these, unshaped has others"
