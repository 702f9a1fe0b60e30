"""No text of an unread file is believed or obeyed: runs, searches and pages of candidates with hostile texts.

No candidate ends a run, no control character reaches a terminal, a page, a log or a table, and no file takes a place
that is another's.
"""

import csv
import json
import re
import shutil

import pytest
from helpers import CARTPOLE_QUICK, TINY_WORDS, write_candidates
from hostile import (
    ALL,
    DOCUMENTED,
    FAILING,
    GOOD,
    NOTES,
    TRAINING,
    TRUSTED,
    escapes,
    false_rows,
)
from page_fakes import HtmlPage

from envcoder_bench.__main__ import main as verbs_main
from envcoder_bench.cli import console
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.jail import confine
from envcoder_bench.run.folder.policies import open_run

pytestmark = pytest.mark.slow
SMALL = [*CARTPOLE_QUICK, "--num_envs_per_candidate", "2", "--learning_iterations", "2", "--seeds", "1"]
SMALL += [word for word in TINY_WORDS if "compile" not in word]  # unread files are compiled
jailed = pytest.mark.skipif(bool(confine.supported()), reason="no jail on this machine")


@pytest.fixture(autouse=True)
def without_videos(monkeypatch):
    monkeypatch.setattr(console, "default_videos", lambda: 0)


def checked(folder, told):
    """Check the terminal and the files of a complete run; return its page."""
    for text in told:
        assert not escapes(text) and not false_rows(text)
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in ("run.log", "results.csv", "report.html")}
    for name, text in texts.items():
        assert not escapes(text), name
        assert not false_rows(text) or name == "report.html", name  # which has the sources
    page = HtmlPage(texts["report.html"])
    assert len(page.scripts) == 2 and not any(name.startswith("on") for name, _ in page.attributes)
    return " ".join(page.text)


def evaluated(folder, texts, *words, capsys):
    files = write_candidates(folder.parent / "files", texts)
    code = main([*SMALL, "--candidates", *map(str, files), "--output_dir", str(folder), *words])
    told = capsys.readouterr()
    assert code == 0, told.err
    return told


@pytest.mark.parametrize("untrusted", [False, pytest.param(True, marks=jailed)], ids=["trusted", "untrusted"])
def test_run_believes_and_obeys_no_text(untrusted, tmp_path, capsys):
    texts = ALL if untrusted else {**ALL, **TRUSTED}
    folder = tmp_path / "run"
    told = evaluated(folder, texts, *["--untrusted"] * untrusted, capsys=capsys)
    page = checked(folder, told)
    run = open_run(folder)
    status = {row.candidate: row.status for row in run.rows}
    ends = {*FAILING, *({"raises_in_training"} & set(texts))}
    assert {name for name, word in status.items() if word.startswith("failed")} == ends
    # none is a variant, hides from the command, or has a row of another
    assert not (folder / "variants.json").exists() and "The terms of" not in page and "Sweep" not in page
    (command,) = re.findall(r"eval-shapers --task Cartpole [^\n]*", page)
    assert all(f"{name}.py" in command for name in texts) and "--terms" not in command and "--sweep" not in command
    # what reads the folder
    shown = tmp_path / "compare.html"
    again = shutil.copytree(folder, tmp_path / "again")
    for words in (["list", str(tmp_path)], ["report", str(folder)], ["compare", str(folder), str(again)]):
        assert verbs_main(words) == 0
        for text in capsys.readouterr():
            assert not escapes(text) and not false_rows(text), words
    assert not escapes(shown.read_text(encoding="utf-8"))
    assert main(["--resume", str(folder)]) == 0
    for text in capsys.readouterr():
        assert not escapes(text) and not false_rows(text)


@pytest.mark.parametrize(
    "words",
    [["--terms"], pytest.param(["--sweep", "SWING=0.1,1", "--untrusted"], marks=jailed)],
    ids=["terms", "sweep of unread files"],
)
def test_variants_are_those_that_the_run_made(words, tmp_path, capsys):
    divided = {**GOOD, "note": NOTES["note_of_a_term"], **DOCUMENTED, "page": TRAINING["page"]}
    failing = {"raises_at_load": FAILING["raises_at_load"], "row_as_a_component": FAILING["row_as_a_component"]}
    folder = tmp_path / "run"
    told = evaluated(folder, {**divided, **failing}, *words, capsys=capsys)
    page = checked(folder, told)
    noted = json.loads((folder / "variants.json").read_text(encoding="utf-8"))
    assert {variant["original"] for variant in noted.values()} == set(divided)
    assert {variant["flag"] for variant in noted.values()} == {words[0]}
    with open(folder / "terms.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["candidate"] for row in rows} == set(noted) and not escapes(json.dumps(rows, ensure_ascii=False))
    # of a copy of the folder, the same
    again = shutil.copytree(folder, tmp_path / "again")
    assert verbs_main(["report", str(again)]) == 0 and main(["--resume", str(again)]) == 0
    assert ("terms of good" if "--terms" in words else "good") in capsys.readouterr().out
    copied = checked(again, capsys.readouterr())
    assert copied.count("of good") == page.count("of good")
    if words == ["--terms"]:
        _candidates_added_to_it_are_not_variants(folder, tmp_path / "more", capsys)


def _candidates_added_to_it_are_not_variants(run, more, capsys):
    noted = (run / "variants.json").read_bytes()
    files = write_candidates(more, {**NOTES, "fails_at_load": FAILING["raises_at_load"]})
    assert main(["--extend", str(run), "--candidates", *map(str, files)]) == 0
    checked(run, capsys.readouterr())
    assert (run / "variants.json").read_bytes() == noted
    variants = {name for name, source in open_run(run).sources.items() if source.variant is not None}
    assert variants == set(json.loads(noted))
