"""Quoted numbers are those of the records: of the README, and of the pages of benchmarks/."""

import json
import re
import sys
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "scripts"), str(ROOT / "benchmarks")]

from bench import records  # noqa: E402
from pages import quotes, render  # noqa: E402

from envcoder_bench.tasks.base import BASELINES  # noqa: E402

MEASURED, STUDIED = (records.read(ROOT / "benchmarks" / name) for name in render.FILES)
PAGES = [ROOT / "README.md", *sorted((ROOT / "benchmarks").glob("*.md"))]
RECORDS = {record["id"]: record for record in (*MEASURED, *STUDIED)}
# pages with all that is written from measurements, and from studies
KINDS = ("speed", "headline", "scaling", "run", "devices")
MEASURES = "".join(f"<!-- {kind} any -->\n<!-- end -->\n" for kind in KINDS)
MEASURES += "".join(f"<!-- quote {name} -->\n<!-- end -->\n" for name in quotes.QUOTES)
STUDIES = "".join(f"<!-- study {name} -->\n<!-- end -->\n" for name in ("components", "ranks"))
ONCE = (
    "finer",
    "physics",
    "transfer",
    "devices",
    "lengths",
)  # kinds of which pages have tables that no script writes any more


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_is_that_of_the_records(page):
    text = page.read_text(encoding="utf-8")
    assert render.render(text, MEASURED, STUDIED) == text, "run python benchmarks/measure.py report"


def test_every_record_has_an_id_of_its_content():
    assert len(RECORDS) == len(MEASURED) + len(STUDIED)
    for name, record in RECORDS.items():
        content = {key: value for key, value in record.items() if key != "id"}
        assert records.identify(content)["id"] == name, "the record was changed"


def headlines(record):
    """Return the numbers of a record that a table quotes."""
    if record["kind"] == "physics":
        rate = record["physics"]
        return [f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} k"]
    fitness = record["fitness"]
    if isinstance(fitness, dict):
        every = [fitness[name] for name in BASELINES if name in fitness] or list(fitness.values())
    else:
        every = [fitness]
    return [f"{mean(x for x in own if x is not None):.2f}" for own in every]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_quoted_records_exist_and_have_the_quoted_numbers(page):
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"<!-- records: ([^>]*) -->", text):
        for name in match[1].split():
            record = RECORDS[name]
            if record["kind"] in ONCE and ("fitness" in record or "physics" in record):
                assert all(number in text[match.end() :] for number in headlines(record)), (name, headlines(record))


def test_every_number_about_speed_in_the_readme_is_made_of_records():
    text = PAGES[0].read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    for section in sections:
        if section.startswith("Speed\n"):
            assert render.BLOCK.search(section) or render.QUOTE.search(section)
            written = render.QUOTE.sub("", render.BLOCK.sub("", section))
            for what in (r"`[^`]*`", r"\]\([^)]*\)", r"95 % intervals"):  # code, addresses, a definition
                written = re.sub(what, "", written)
            assert not re.findall(r"[^\n]*\d[^\n]*", written)


def changed(kind, change, **facts):
    """Return the records with another one, later than a known one of these facts."""
    last = [r for r in MEASURED if r["kind"] == kind and all(r[key] == value for key, value in facts.items())][-1]
    return [*MEASURED, {**last, "date": "2999-01-02 03:04", **change(last)}]


@pytest.mark.parametrize(
    ("kind", "change", "facts"),
    [
        ("scaling", lambda r: {"training": r["training"] * 0.9}, {"candidates": 250, "device": "cuda"}),
        ("scaling", lambda r: {"label": "B200", "memory_gib": 33.3}, {"candidates": 1000}),
        ("scaling", lambda r: {"physics": r["physics"] * 1.3}, {"candidates": 16, "device": "cpu"}),
        ("processes", lambda r: {"total": r["total"] * 2}, {"device": "cuda"}),
        ("run", lambda r: {"seconds": 200.0}, {"candidates": 250}),
        ("run", lambda r: {"seconds": 150.0, "after_last_iteration_s": 5.0}, {"candidates": 250}),
    ],
)
def test_newer_record_of_other_numbers_makes_a_page_stale(kind, change, facts):
    now = render.render(MEASURES, MEASURED, STUDIED)
    assert render.render(now, changed(kind, change, **facts), STUDIED) != now


def test_newer_training_makes_the_table_stale():
    last = next(r for r in reversed(STUDIED) if r["kind"] == "components" and r["task"] == "Anymal" and r["last"])
    other = {name: [x + 1.0 for x in own] for name, own in last["fitness"].items()}
    later = {**last, "date": "2999-01-02 03:04", "fitness": other}
    assert "2999-01-02" in render.render(STUDIES, MEASURED, [*STUDIED, later])


def run(seconds, label="H100 80GB HBM3", day="01", **more):
    about = {"kind": "run", "candidates": 250, "envs": 256, "iterations": 300, "device": "cuda", "label": label}
    return {**about, "machine": "x, MuJoCo Warp 4.0.0", "date": f"2026-01-{day} 00:00", "seconds": seconds, **more}


def test_times_are_those_of_the_card_measured_last():
    assert quotes.whole_run([run(9.0, "H200"), run(200.0), run(150.4, day="03")]) == (
        "The whole command for 250 candidates and 300 iterations took 150 to 200 s in 2 runs, without the page"
        " (H100, MuJoCo Warp 4.0.0, 2026-01-01 to 2026-01-03)."
    )
    with_page = run(160.0, day="02", after_last_iteration_s=9.0)
    assert " took 160 s in one run, page included (" in quotes.whole_run([run(150.0), with_page, run(140.0, day="03")])


def test_agreement_among_the_best_is_of_those_that_the_reference_ranks_first():
    true = {f"c{k}": float(k) for k in range(10)}  # the best three, c7 to c9, are the other way round
    cheap = {**true, "c9": 7.0, "c7": 9.0}
    reference = {"seeds": 2, "fitness": {name: [x, x] for name, x in true.items()}}
    record = {"seeds": 1, "fitness": {name: [x] for name, x in cheap.items()}}
    every, best = quotes.agreement(record, reference, None), quotes.agreement(record, reference, 3)
    assert every[0] == pytest.approx(1 - 6 * 8 / 990) and best == pytest.approx((-1.0, 1.0)) and every[1] == 1.0


def test_appended_record_has_an_id(tmp_path):
    records.append(tmp_path / "records.jsonl", {"kind": "run", "seconds": 1.5})
    (line,) = (tmp_path / "records.jsonl").read_text().splitlines()
    assert re.fullmatch(r"run-[0-9a-f]{8}", json.loads(line)["id"])
