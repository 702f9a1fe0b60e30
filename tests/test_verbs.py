"""The command envcoder-bench: its verbs, their help, bad input."""

import contextlib
import importlib
import re
import shutil
import subprocess
import sys

import pytest
from helpers import refused

import envcoder_bench
from envcoder_bench.__main__ import main
from envcoder_bench.cli.verbs import SHELLS, VERBS
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


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_a_script_of_the_shell(shell, capsys, tmp_path):
    pytest.importorskip("shtab", reason="pip install 'envcoder-bench[dev]': no shtab")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    program = shutil.which(shell)
    if program is not None:
        assert subprocess.run([program, "-n", str(script)], capture_output=True, check=True).stderr == b""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_verbs_flags_tasks_and_files(capsys, tmp_path):
    pytest.importorskip("shtab", reason="pip install 'envcoder-bench[dev]': no shtab")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "mine.py").touch(), (tmp_path / "runs").mkdir()
    ask = """source ./script; while read -r -a COMP_WORDS; do
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
        complete=$(complete -p ${COMP_WORDS[0]}); complete=${complete##*-F }
        ${complete%% *} ${COMP_WORDS[0]} "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        echo ${COMPREPLY[*]}; done"""
    lines = {
        "eval-shapers --task Cartpole --candi": "--candidates --candidate_idx",
        "eval-shapers --task CartpoleS": "CartpoleSwingup",
        "eval-shapers --candidates mi": "mine.py",
        "eval-shapers --resume ru": "runs",
        "auto-shape --max_c": "--max_cost",
        "eval-policies --terr": "--terrains",
        "envcoder-bench comp": "compare completion",
        "envcoder-bench report r": "runs",
        "envcoder-bench play --po": "--policy_seed",
    }
    done = subprocess.run(
        ["bash", "-c", ask], cwd=tmp_path, input="\n".join([*lines, ""]), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [*lines.values()] and done.stderr == ""


def test_without_the_package_completion_says_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert refused(main, ["completion", "bash"], capsys).endswith(
        "completion needs the package shtab: pip install shtab\n"
    )
