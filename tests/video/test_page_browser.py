"""The page of a run in Chromium: sorting, hovering, zooming, playing, no message and no request."""

import functools
import os
import shutil

import numpy as np
import pytest
from page_fakes import HOSTILE, fake_page

from envcoder_bench.report import course
from envcoder_bench.report.page import charts
from envcoder_bench.report.page.run import render_page
from envcoder_bench.results.pairs import BETTER, CANNOT_TELL, WORSE, advice, sentence
from envcoder_bench.results.speed import steps_until

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install 'envcoder-bench[dev]': no playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]


@functools.cache
def clip():
    """A second of a moving bar."""
    pytest.importorskip("av", reason="pip install 'envcoder-bench[video]': no av")
    import tempfile
    from pathlib import Path

    from envcoder_bench.video.draw import Encoder

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        encoder = Encoder(path, 64, 48, 10)
        for k in range(10):
            picture = np.full((48, 64, 3), 200, np.uint8)
            picture[:, 5 * k : 5 * k + 8] = (200, 30, 30)
            encoder.add(picture)
        encoder.finish()
        return path.read_bytes()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        with playwright.chromium.launch(executable_path=CHROMIUM, args=[*sandbox, "--disable-gpu"]) as chromium:
            yield chromium


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    """The page, opened from a file; at the end there was no message and no request."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(fake_page(mp4=clip())), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    faults, requests = [], []
    tab.on("console", lambda message: faults.append(message.text))
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready]")
    yield tab
    assert faults == []
    assert [url for url in requests if not url.startswith(("blob:", "data:"))] == [path.as_uri()]


@pytest.fixture(scope="module")
def decided(browser, tmp_path_factory):
    """A run with as many seeds as tell some of its candidates apart, and its page."""
    path, run = tmp_path_factory.mktemp("decided") / "report.html", fake_page(seeds=10)
    path.write_text(render_page(run), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-ready]")
    return run, tab


def column(page, k):
    script = f"rows => rows.filter(r => !r.hidden).map(r => r.cells[{k}].dataset.v)"
    return page.eval_on_selector_all("#ranking tbody tr", script)


def sort(page, k):
    page.click(f"#ranking th:nth-child({k + 1}) button")


def test_candidate_names_run_no_scripts(page):
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2
    assert HOSTILE[0] in page.inner_text("#ranking")


def test_ranking_is_sorted_by_column(page):
    names = column(page, 1)
    assert names[:3] == ["human", "unshaped", "first"]
    sort(page, 2)
    values = [float(x) for x in column(page, 2) if x]
    assert values == sorted(values, reverse=True) and column(page, 2)[-1] == ""
    sort(page, 2)
    values = [float(x) for x in column(page, 2) if x]
    assert values == sorted(values) and column(page, 2)[-1] == ""  # without a fitness: last in both orders
    sort(page, 1)
    assert [x.lower() for x in column(page, 1)] == sorted(x.lower() for x in names)
    sort(page, 0)
    assert column(page, 1)[:3] == names[:3]


def test_ranking_is_filtered_by_name_and_status(page):
    every = len(column(page, 1))
    page.fill("#filter", "SECOND")
    assert column(page, 1) == ["second"] and page.inner_text("#shown") == f"1 of {every}"
    page.fill("#filter", "")
    page.check("#without-failed")
    assert len(column(page, 1)) == every - 1
    page.uncheck("#without-failed")
    assert len(column(page, 1)) == every


def test_link_opens_its_candidate(page):
    page.click("#ranking tbody tr:nth-child(3) a")
    page.wait_for_selector("details#candidate-2[open] .code")
    assert "compute_reward" in page.inner_text("details#candidate-2")
    assert page.locator("details#candidate-2 .gi").count() > 0  # the differences


def test_hovering_shows_the_name_of_the_line(page):
    page.locator("#curves-chart").scroll_into_view_if_needed()
    box = page.locator("#curves-chart .u-over").bounding_box()
    tip = page.locator("#curves-chart .tip")
    # the baselines end at 0.95 and 0.87 on an axis that ends at 1
    for share, name in ((0.05, "human"), (0.12, "unshaped")):
        page.mouse.move(box["x"] + 0.99 * box["width"], box["y"] + share * box["height"], steps=3)
        tip.wait_for(state="visible")
        page.wait_for_function(
            "name => document.querySelector('#curves-chart .tip').textContent.startsWith(name + ': 0.')", arg=name
        )
    page.mouse.move(5, 5)
    tip.wait_for(state="hidden")


def test_dragging_zooms_the_chart(page):
    labels = "() => [...document.querySelectorAll('#curves-chart canvas')].map(c => c.toDataURL()).join()"
    page.locator("#curves-chart").scroll_into_view_if_needed()
    box = page.locator("#curves-chart .u-over").bounding_box()
    before, middle = page.evaluate(labels), box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=4)
    page.mouse.up()
    page.wait_for_function(f"before => ({labels})() !== before", arg=before)
    page.mouse.dblclick(box["x"] + 5, middle)
    page.mouse.move(5, 5)


def test_candidates_and_quantities_can_be_switched(page):
    drawn = "() => document.querySelector('#curves-chart canvas').toDataURL()"
    first = page.evaluate(drawn)
    page.click("#curves-chips button >> nth=0")
    assert page.get_attribute("#curves-chips button >> nth=0", "aria-pressed") == "false"
    page.wait_for_function(f"first => ({drawn})() !== first", arg=first)
    for name in ("none", "all", "the best"):
        page.get_by_role("button", name=name, exact=True).click()
    assert page.get_attribute("#curves-chips button >> nth=0", "aria-pressed") == "true"
    for metric in ("value_loss", "kl", "fitness"):
        page.select_option("#metric", metric)
    page.select_option("#components-of", index=1)
    assert HOSTILE[0] in page.inner_text("#components-chips")


def test_a_component_of_several_candidates_is_one_plot(page):
    page.select_option("#components-of", label="part 1")
    shown = [text.strip() for text in page.locator("#components-chips button").all_inner_texts()]
    assert shown == ["human", "first", HOSTILE[0], HOSTILE[2], HOSTILE[4].replace("\u202e", "\\u202e")]
    colors = page.eval_on_selector_all("#components-chips .dot", "all => all.map(one => one.style.background)")
    assert colors[0] == "var(--human)" and len(set(colors)) == 5, "those of the ranking and of the learning curves"
    assert colors[1] == page.eval_on_selector("#ranking tr:nth-child(3) .dot", "one => one.style.background")


def choose(page, first, second):
    page.select_option("#pair-first", label=first)
    page.select_option("#pair-second", label=second)


def test_two_candidates_side_by_side(page):
    """At first the best candidate and the human baseline; what they have in common is in one plot."""
    assert page.input_value("#pair-first") == "2" and page.input_value("#pair-second") == "0"
    verdict = page.inner_text("#pair-verdict")
    pair = fake_page().pairs.of("human", "first")
    assert verdict == ". ".join([sentence(pair), advice(pair)]) and "cannot tell; difference +0.164 [" in verdict
    assert [row.split("\t")[1].split()[0] for row in page.locator("#pair-rows tr").all_inner_texts()] == [
        "candidate", "first", "humanbaseline",
    ]  # fmt: skip
    # where: the share of first's episodes falls evenly, so that their difference grows
    where = page.inner_text("#pair-where")
    assert "18 % of the episodes of first end early" in where and " s to 10 s" not in where
    recorded = charts.step_fitness(fake_page().step_fitness)
    assert where == course.where(recorded, "first", "human"), "the rule of compare RUN A B"
    for chart in ("fitness", "gap", "active", "parts"):
        assert page.locator(f"#pair-{chart} canvas").count() == 1
    page.locator("#pair-gap").scroll_into_view_if_needed()
    box = page.locator("#pair-gap .u-over").bounding_box()
    page.mouse.move(box["x"] + 0.99 * box["width"], box["y"] + 0.94 * box["height"], steps=3)
    page.wait_for_function("() => document.querySelector('#pair-gap .tip').textContent.startsWith('difference: -0.1')")
    page.mouse.move(5, 5)
    chips = [text.strip() for text in page.locator("#pair-chips button").all_inner_texts()]
    assert chips == ["part 0", "part 1", "part 2"]
    # their videos, played together
    films = "[...document.querySelectorAll('#pair-films video')]"
    page.wait_for_function(f"() => {films}.length === 2 && {films}.every(v => v.readyState >= 2)")
    page.evaluate(f"{films}[1].currentTime = 0.5")
    page.wait_for_function(f"() => {films}.every(v => Math.abs(v.currentTime - 0.5) < 0.05)")
    # names are texts; without videos, components in common or a fitness the rest is there
    choose(page, HOSTILE[0], HOSTILE[6])
    assert page.inner_text("#pair-verdict") == f"{HOSTILE[6]} has no fitness."
    for part in ("videos", "steps"):
        assert page.locator(f"#pair-{part}").is_hidden()
    choose(page, "first", "first")
    assert page.inner_text("#pair-verdict") == "Choose two candidates."
    page.click("#ranking tbody tr:nth-child(4) .compare", force=True)
    assert page.input_value("#pair-first") == "3"
    assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0


def test_every_pair_has_its_number(decided):
    """The signs of all pairs; hovering one shows its words, and a click compares the two."""
    run, page = decided
    names = [row.candidate for row in run.ranked if row.candidate in run.pairs.names]
    signs = page.eval_on_selector_all(
        "#pairs tr:not(:first-child)", "all => all.map(one => [...one.cells].slice(1).map(cell => cell.textContent))"
    )
    meaning = {"+": BETTER, "-": WORSE, "·": CANNOT_TELL}
    assert len(signs) == len(names) > 5
    for i, first in enumerate(names):
        for j, second in enumerate(names):
            assert signs[i][j] == "" if i == j else meaning[signs[i][j]] == run.pairs.of(first, second).verdict
    assert {"+", "-", "·"} <= {sign for row in signs for sign in row}
    idle = page.inner_text("#pairs-text")
    cell = page.locator("#pairs tr:nth-child(2) td:nth-child(4) button")  # the first against the third
    cell.hover()
    assert page.inner_text("#pairs-text").startswith(sentence(run.pairs.of(names[0], names[2])))
    page.mouse.move(5, 5)
    page.wait_for_function("idle => document.querySelector('#pairs-text').innerText === idle", arg=idle)
    cell.click()
    shown = (page.input_value("#pair-first"), page.input_value("#pair-second"))
    assert [run.ranked[int(k)].candidate for k in shown] == [names[0], names[2]]
    assert page.evaluate("window.hacked") is None


def test_heads_of_columns_have_help(page):
    help_text = page.locator("#ranking [popover]:visible")
    assert help_text.count() == 0
    page.click("#ranking th:has-text('vs human') button.help")
    assert "Mean difference to the human baseline with the same seeds" in help_text.inner_text()
    page.keyboard.press("Escape")
    assert help_text.count() == 0


def test_any_two_sources_are_compared(page):
    choose(page, "human", "second")
    assert page.inner_text("#pair-diff") == "They are equal."
    assert page.inner_text("#pair-kinds") == "Compared: compute_reward, and what they use."
    page.check("#pair-whole")
    script = """([from, to]) => {
        document.querySelector("#candidate-0 .source pre").textContent = from;
        document.querySelector("#candidate-3 .source pre").textContent = to;
        document.getElementById("pair-second").dispatchEvent(new Event("change"));
    }"""
    lines = """all => all.map(one => one.className === 'gu' ? '…' : [...one.children].map(line => ({gd: '-', gi: '+'}[
        line.className] || ' ') + [...line.childNodes].slice(1).map(part => part.textContent).join('')).join('|'))"""
    for before, after, blocks in (
        ("a\nb\nc\n", "a\nx\nc\ny\n", [" a", " a", "-b", "+x", " c", " c", "", "+y"]),
        ("", "a", ["-", "+a"]),
        ("\n".join("abcdefghi"), "\n".join("abcdefgXi"), ["…", " e| f| g", " e| f| g", "-h", "+X", " i", " i"]),
        ("<b>1</b>", "<b>2</b>", ["-<b>1</b>", "+<b>2</b>"]),
    ):
        page.evaluate(script, [before, after])
        assert page.eval_on_selector_all("#pair-diff .pair-lines > :not(.title)", lines) == blocks
    assert page.locator("#pair-diff .hot").all_inner_texts() == ["1", "2"], "what differs within a line"
    page.uncheck("#pair-whole")


def test_letters_show_who_shares_one(decided):
    run, page = decided
    groups = [set(row.tie_groups) for row in run.ranked]
    page.click("#ranking tbody tr:nth-child(1) button.letters")
    apart = page.eval_on_selector_all("#ranking tbody tr", "all => all.map(one => one.classList.contains('apart'))")
    assert apart == [not groups[0] & group for group in groups] and 0 < sum(apart) < len(apart) - 1
    page.click("#ranking tbody tr:nth-child(1) button.letters")
    assert page.locator("#ranking tr.apart").count() == 0


def test_env_steps_to_a_fitness_are_those_of_the_report(page):
    """The page's rule is that of ``steps_until``, at the first target and at others."""
    table = fake_page().curves
    evaluated = table[table["fitness"].notna()]
    before = float("nan")  # there is no untrained policy
    for target in (None, 0.5, 0.07, 2.0):
        if target is not None:
            page.fill("#target", str(target))
        target = float(page.input_value("#target"))
        shown = page.eval_on_selector_all(
            "#ranking td.until", "all => all.map(one => [one.dataset.v, one.textContent])"
        )
        names = [name for name in column(page, 1) if name.replace("\\u202e", "\u202e") in set(evaluated["candidate"])]
        assert len(shown) == len(names) == 10
        for name, (value, text) in zip(names, shown, strict=True):
            of_name = evaluated[evaluated["candidate"] == name.replace("\\u202e", "\u202e")]
            courses = [list(zip(rows["env_steps"], rows["fitness"])) for _, rows in of_name.groupby("seed")]
            steps, there = zip(*(steps_until(target, before, course) for course in courses))
            assert (text == "never") == (not any(there)) == (value == "")
            if any(there):
                assert float(value) == pytest.approx(sum(steps) / len(steps), rel=1e-3)
    assert page.inner_text("#ranking th:has-text('steps to 2')")


def test_dark_mode_changes_page_and_charts(page):
    drawn = "() => document.querySelector('#curves-chart canvas').toDataURL()"
    back = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(drawn), page.evaluate(back)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"light => ({drawn})() !== light", arg=light[0])
    assert page.evaluate(back) == "rgb(17, 22, 29)"
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"light => ({drawn})() === light", arg=light[0])
    assert page.evaluate(back) == light[1]


# the texts that charts draw, each with its x, its width and the width of its canvas, when ACT draws them again
DRAWN = """(argument) => new Promise((done) => {
    const texts = [], prototype = CanvasRenderingContext2D.prototype, fill = prototype.fillText;
    prototype.fillText = function (text, x) { texts.push([text, x, this.measureText(text).width, this.canvas.width]); };
    ACT
    setTimeout(() => { prototype.fillText = fill; done(texts); }, 200);
})"""


def test_small_numbers_have_an_exponent(page):
    act = "const select = document.getElementById('metric'); select.value = argument;"
    change = f"{act} select.dispatchEvent(new Event('change'));"
    assert "3e-4" in [text for text, *_ in page.evaluate(DRAWN.replace("ACT", change), "learning_rate")]
    page.select_option("#metric", "fitness")


def test_labels_of_the_time_are_inside_their_charts(page):
    """A figure's time ends at 2 s, whose label is at the right end, with room for that of 100 s."""
    for width in (333, 400, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        resized = DRAWN.replace("ACT", "window.dispatchEvent(new Event('resize'));")
        times = [entry for entry in page.evaluate(resized) if entry[0].endswith(" s")]
        assert len(times) >= 3 and all(x + wide * 5 / 6 <= canvas for _, x, wide, canvas in times)


def test_narrow_page_does_not_scroll_sideways(page):
    page.set_viewport_size({"width": 390, "height": 900})
    page.wait_for_function("() => document.documentElement.scrollWidth === 390")
    cells = page.eval_on_selector_all(
        "#ranking tbody tr:nth-child(1) td", "all => all.map(one => one.getBoundingClientRect().right)"
    )
    assert cells[2] < cells[3] <= 390, "fitness and difference with their intervals are in sight"
    assert page.locator("#ranking tbody tr:nth-child(2) td:nth-child(4) small").is_visible()
    page.set_viewport_size({"width": 1280, "height": 900})


def test_videos_play_in_sync(page):
    assert page.evaluate("[...document.querySelectorAll('#videos video')].length") == 3
    page.wait_for_function("() => [...document.querySelectorAll('#videos video')].every(v => v.readyState >= 2)")
    page.click("#play")
    page.wait_for_function("() => [...document.querySelectorAll('#videos video')].every(v => v.currentTime > 0.2)")
    page.wait_for_function("() => document.querySelector('#clock').textContent.startsWith('2.0')")  # the lines go on
    page.wait_for_function("() => document.querySelector('#play').textContent.includes('Play')")  # at the end it stops
    page.evaluate("s => { s.value = 0.4; s.dispatchEvent(new Event('input')); }", page.query_selector("#scrub"))
    page.wait_for_function(
        "() => [...document.querySelectorAll('#videos video')].every(v => Math.abs(v.currentTime - 0.4) < 0.05)"
    )
    heads = page.eval_on_selector_all(".playhead", "all => all.map(one => one.style.left)")
    assert len(heads) == 3 and len(set(heads)) <= 2 and heads[0] != "0px"
    assert "fitness so far" in page.inner_text("figure .live >> nth=0")
