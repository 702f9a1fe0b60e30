"""The command envcoder-bench: its verbs, their help, bad input."""

import contextlib
import importlib
import re

import pytest
from helpers import refused

import envcoder_bench
from envcoder_bench.__main__ import main
from envcoder_bench.cli.verbs import VERBS
from envcoder_bench.core.shell import invocation


@pytest.mark.parametrize(
    "words, message",
    [
        ("", f"envcoder-bench: error: which verb? There are {', '.join(VERBS)}; see --help"),
        ("lst", f"envcoder-bench: error: unknown verb 'lst' (did you mean list?); there are {', '.join(VERBS)}"),
        ("list nowhere", "envcoder-bench list: error: nowhere: the folder does not exist"),
        ("list --hepl", "envcoder-bench list: error: unrecognized arguments: --hepl (did you mean --help?)"),
    ],
)
def test_bad_input_prints_one_line_and_writes_no_files(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(main, words.split(), capsys).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_help_lists_every_verb(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, verb in VERBS.items():
        assert re.search(rf"^  {name} +{re.escape(verb.meaning)}$", text, flags=re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples_that_parse(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    start = f"  {invocation('envcoder-bench')} {verb}"
    examples = [line for line in text.split("examples:")[1].splitlines() if line.startswith(start)]
    assert examples and "exit codes: 0" in text
    for line in examples:
        VERBS[verb].build_parser().parse_args(line[len(start) :].split())


@pytest.mark.parametrize("command", ["eval_shapers", "auto_shape", "eval_policies", "list", "report", ""])
def test_version_is_printed(command, capsys):
    if command in VERBS or not command:
        run, words = main, [*([command] if command else []), "--version"]
    else:
        run, words = importlib.import_module(f"envcoder_bench.cli.{command}").main, ["--version"]
    with contextlib.suppress(SystemExit):  # as argparse ends --help
        assert run(words) == 0
    assert capsys.readouterr().out == f"EnvCoderBench {envcoder_bench.__version__}\n"
