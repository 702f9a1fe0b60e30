"""The command envcoder-bench: its verbs, their help, bad input."""

import importlib
import re
from pathlib import Path

import pytest

from envcoder_bench.__main__ import main
from envcoder_bench.cli.verbs import VERBS
from envcoder_bench.core.shell import invocation


def failing(words, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    return captured.err


@pytest.mark.parametrize(
    "words, message",
    [
        ("", f"envcoder-bench: error: which verb? There are {', '.join(VERBS)}; see --help"),
        ("lst", f"envcoder-bench: error: unknown verb 'lst' (did you mean list?); there are {', '.join(VERBS)}"),
        ("list nowhere", "envcoder-bench list: error: nowhere: there is no folder of this name"),
        ("list --hepl", "envcoder-bench list: error: unrecognized arguments: --hepl (did you mean --help?)"),
    ],
)
def test_bad_input_prints_one_line_and_writes_no_files(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert failing(words.split(), capsys).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_help_lists_every_verb(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for verb, meaning in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(meaning)}$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples_that_parse(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    start = f"  {invocation('envcoder-bench')} {verb}"
    examples = [line for line in text.split("examples:")[1].splitlines() if line.startswith(start)]
    assert examples and "exit codes: 0" in text
    module = importlib.import_module(f"envcoder_bench.cli.verbs.{verb.replace('-', '_')}")
    for line in examples:
        module.build_parser().parse_args(line[len(start) :].split())


def test_verbs_are_the_modules_of_their_folder():
    folder = Path(importlib.import_module("envcoder_bench.cli.verbs").__file__).parent
    assert {verb.replace("-", "_") for verb in VERBS} == {path.stem for path in folder.glob("*.py")} - {"__init__"}
