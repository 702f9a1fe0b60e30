"""The numbers of the README's section on speed are those of the newest record."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from bench import quotes, records  # noqa: E402
from bench.report import BLOCK, STUDY, render  # noqa: E402
from bench.tables import speed_rows, table  # noqa: E402

README = (ROOT / "README.md").read_text(encoding="utf-8")
MEASURED, STUDIED = (records.read(ROOT / "docs" / name) for name in ("benchmarks.jsonl", STUDY))
SECTIONS = ("Speed",)


def section(title):
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_readme_is_that_of_the_records():
    wanted = render(README, MEASURED, STUDIED)
    assert wanted == README, "run python scripts/benchmark.py report"


@pytest.mark.parametrize("title", SECTIONS)
def test_every_number_is_in_a_part_that_is_made_of_records(title):
    text = section(title)
    assert BLOCK.search(text)
    written = BLOCK.sub("", text)
    for what in (r"`[^`]*`", r"\]\([^)]*\)"):  # code, addresses
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
        ("scaling", lambda r: {"label": "B200", "memory_gib": 33.3}, {"candidates": 250, "device": "cuda"}),
    ],
)
def test_newer_record_of_other_numbers_makes_the_readme_stale(kind, change, facts):
    assert render(README, changed(kind, change, **facts), STUDIED) != README


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


def test_speed_is_that_of_the_card_measured_last():
    about = {"kind": "scaling", "envs": 256, "physics": 2e6, "memory_gib": 1.0, "device": "cuda", "machine": "x, W 1"}
    rows = [
        {**about, "candidates": 250, "label": "H200", "training": 1e6, "date": "2026-01-02 00:00"},
        {**about, "candidates": 250, "label": "H100 80GB", "training": 1.5e6, "date": "2026-01-03 00:00"},
        {**about, "candidates": 4, "label": "H200", "training": 1.2e6, "date": "2026-01-04 00:00"},
        {**about, "candidates": 250, "label": "2 CPU", "training": 1.0, "date": "2026-01-09 00:00", "device": "cpu"},
    ]
    assert table("speed", speed_rows(rows))[2:] == ["| 250 x 256 | 1.50 M | 75 % | 1.0 GiB | H100, W 1, 2026-01-03 |"]


def test_agreement_among_the_best_is_of_those_that_the_reference_ranks_first():
    true = {f"c{k}": float(k) for k in range(10)}  # the best three, c7 to c9, are the other way round
    cheap = {**true, "c9": 7.0, "c7": 9.0}
    reference = {"seeds": 2, "fitness": {name: [x, x] for name, x in true.items()}}
    record = {"seeds": 1, "fitness": {name: [x] for name, x in cheap.items()}}
    every, best = quotes.agreement(record, reference, None), quotes.agreement(record, reference, 3)
    assert every[0] == pytest.approx(1 - 6 * 8 / 990) and best == pytest.approx((-1.0, 1.0)) and every[1] == 1.0
