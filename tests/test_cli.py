"""Bad input: one clear message, exit code 2, nothing written."""

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from helpers import CARTPOLE_QUICK, COSINE, refused, results, run, write_candidates

from envcoder_bench import __main__ as verbs
from envcoder_bench.cli import console
from envcoder_bench.cli.command_line import command
from envcoder_bench.cli.eval_shapers import _parsed, build_parser, main
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.folders import PACKAGE
from envcoder_bench.core.shell import invocation, resume_command
from envcoder_bench.results.ranking import rank
from envcoder_bench.results.rows import Result
from envcoder_bench.run.inputs import read_candidates
from envcoder_bench.run.result import RunResult
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.train import session as session_module

NEEDS_THE_TASK = ("environments fit", "needs about", "raise --max_memory", "defines none of", "cannot be written")


@pytest.mark.parametrize(
    "words, message",
    [
        ("", "no task: give --task NAME, e.g. --task Cartpole; see --help"),
        (
            "--task Cartpol",
            "unknown task 'Cartpol' (did you mean Cartpole or CartpoleSwingup?); there are AllegroHand, Ant, Anymal",
        ),
        ("... --shaper_types compute_rewrd", "unknown shaper type 'compute_rewrd' (did you mean compute_reward"),
        (
            "... --learning_iteration 3",
            "unrecognized arguments: --learning_iteration (did you mean --learning_iterations?)",
        ),
        ("... --candidates nowhere.py", "nowhere.py does not exist"),
        ("... --candidates {folder}/a.py {folder}/a.py", "a.py is given twice"),
        ("... --describe --check", "--check and --describe: give one of them"),
        ("... --fitness_bounds 0,1", "--fitness_bounds (did you mean fitness_bounds=VALUE, without dashes?)"),
        ("... describe", "'describe' is neither a flag nor key=value (did you mean --describe?)"),
        ("... fitness_bounds=0,1", "give one value, a list as fitness_bounds=[a,b], or a text"),
        ("... race.rungs=[5,3", "is a bracket or a quote missing?"),
        ("... --terms --sweep_points 3", "--sweep_points 3 is for --sweep, which is not given"),
        ("... --trainer my_trainer.py", "there are ppo, sac, sac_small, a2c_continuous, "),
        ("... --candidates {empty}", "no candidates found in {empty}"),
        ("... --candidates {folder}/notes.txt", "notes.txt is not a candidate: a candidate is a .py file"),
        ("... --candidates {folder} --candidate_idx 0,7", "no candidate at position 7: there are 2 (0 a, 1 b)"),
        ("... --candidates {folder} --reward_idx one", "candidate position 'one' is not a number: write e.g. 0,2,5"),
        ("... --candidates {folder} --num_envs 10", "the nearest numbers that can: 8 or 12"),
        ("... --candidates {folder} --num_envs 3", "among 4 groups (candidates and baselines times seeds)"),
        ("... --candidates {folder} --seeds 0", "seeds must be a whole number of at least 1, or auto, got 0"),
        ("... --seeds two", "argument --seeds: it must be a whole number of at least 1, or auto, got two"),
        ("... --seeds auto --race", "seeds=auto with a race: how long a race takes cannot be predicted"),
        ("... --candidates {folder} --learning_iterations -1", "learning_iterations must be a whole number"),
        ("... --num_envs_per_candidate many", "argument --num_envs_per_candidate: invalid int value: 'many'"),
        ("... --num_envs 4 --num_envs_per_candidate 2", "not allowed with argument"),
        ("... --sim mujocu_cpu", "invalid choice: 'mujocu_cpu'"),
        ("... --device cuda:97", "cuda:97"),
        ("... --gpu_id 97", "cuda:97"),
        ("... --gpu_id 0 --device cpu", "--gpu_id and --device both choose the device"),
        ("... --sim mujoco_cpu --device toaster", "toaster"),
        ("... train.params.config.mixed_precision=True", "params.config.mixed_precision"),
        ("... --num_envs_per_candidate 2000000000", "environments fit; lower --num_envs_per_candidate"),
        ("... --max_memory lots", "must be a size such as 24GiB, 24000MB or 24 (GiB), got lots"),
        ("... --max_memory 1MB", "one candidate with 256 environments needs about"),
        ("... max_memory=1MB", "the program alone takes 655 MiB: raise --max_memory"),
        ("... seed=4294967296", "must be at most 4294967295"),
        ("... task.sim.mujoco.integrator=discret", "unknown 'discret' (did you mean discrete?); there are"),
        ("... task.sim.mujoco.iterations=0", "task.sim.mujoco.iterations must be a whole number of at least"),
        ("... task.sim.mujoco.iteration=4", "(did you mean task.sim.mujoco.iterations"),
        ("... evaluation.point_steps=0", "evaluation.point_steps must be a whole number of at least 1, or"),
        ("... task.env.episodeLength=0", "task.env.episodeLength must be a whole number of at least 2"),
        ("... train.params.config.gamma=2", "config.gamma: must be a number from 0 to 1, got 2"),
        ("... train.params=3", "train.params must hold keys, got 3"),
        ("... task.env.maxEffort=strong", "task.env.maxEffort must be a number, such as 400.0, got strong"),
        ("--task Anymal task.env.baseInitState.pos=[0,0]", "task.env.baseInitState.pos must be a list of 3 numbers"),
        ("... task.env=3", "task.env must hold the keys resetDist, maxEffort"),
        ("... --shaper_types ,", "error: --shaper_types is empty; there are compute_reward"),
        ("... shaper_types=[]", "error: shaper_types is empty; there are compute_reward"),
        ("... --shaper_types compute_reward,compute_gaol", "'compute_gaol' (did you mean compute_goal or"),
        (
            "... --candidates {folder} --shaper_types compute_goal",
            "a.py: defines none of the asked compute_goal; it defines compute_reward; and 1 more candidate of the same",
        ),
        ("... --candidates {folder} --candidate_idx 0 7", "no candidate at position 7: there are 2"),
        ("... --candidates {folder} --no_baselines --candidate_idx 0 --num_envs 0", "at least 1, got 0"),
        ("... --train_config {empty}/x.yaml", "x.yaml cannot be read: No such file"),
        ("--train_config x.yaml", "no task: give --task NAME"),
        ("Cartpole", "'Cartpole' is neither a flag nor key=value (did you mean --task Cartpole?)"),
        ("... --baseline human mine.py", "nor key=value (did you mean --candidates mine.py?)"),
        ("... foo.bar=1", "unknown key 'foo.bar' (keys are such as learning_iterations=100 or train.params"),
        ("... task.name=Anymal", "choose the task with --task"),
        ("... --candidates {folder} --sweep train.params.config.gama=0.9", "'train.params.config.gama' (did you"),
        ("... --candidates {folder} --sweep_points 3", "--sweep_points 3 is for --sweep, which is not given"),
        ("... --candidates {folder} --race race.rungs=[5,3]", "race.rungs must be increasing iterations"),
        ("... --fitness nowhere.py", "--fitness nowhere.py does not exist"),
        ("... --candidates nowhere.py --check", "nowhere.py does not exist"),
        ("--task no_such_module:Robot --candidates nowhere.py", "nowhere.py does not exist"),
        ("--task no_such_module:Robot --candidates {broken}", "b.py:1: syntax error: '(' was never closed at"),
        ("... --candidates {broken} --check", "; and 1 more candidate that cannot be parsed"),
        ("--task no_such_module:Robot --fitness nowhere.py", "--fitness nowhere.py does not exist"),
        ("... --num_envs -6", "--num_envs must be at least 1, got -6"),
        ("... --output_dir {folder}/a.py/run --num_envs_per_candidate 2", "cannot be written"),
        ("--resume {damaged}", "the run is damaged"),
        ("--resume {empty}/..", "(no config.yaml); give one of those in it, such as {empty}/../damaged"),
        ("--resume {empty}/../damged", "it is not the folder of a run: no such folder (did you mean damaged?)"),
        ("--resume {empty}", "it is not the folder of a run (no config.yaml)"),
        ("--resume {empty} --seeds 3", "--resume takes no other flag but --devices, --ray and --video"),
    ],
)
def test_bad_input_prints_one_line_and_writes_no_files(words, message, tmp_path, capsys, monkeypatch):
    """What can be known without the task, which may take minutes to build, is said before it is built.

    ``...`` stands for ``--task Cartpole``.
    """
    if not any(text in message for text in NEEDS_THE_TASK):
        monkeypatch.setattr(RunSpec, "try_code", lambda _: pytest.fail("the task's code was run"))
    places = {name: tmp_path / name for name in ("folder", "empty", "broken", "damaged", "work")}
    for path in places.values():
        path.mkdir()
    write_candidates(places["folder"], {"a": COSINE, "b": COSINE})
    write_candidates(places["broken"], {"b": "def f(x", "c": "x = = 1"})
    (places["folder"] / "notes.txt").touch()
    (places["damaged"] / "config.yaml").write_text("candidates: [{name: gone, file: gone.py}]")
    monkeypatch.chdir(places["work"])  # runs/ would come to be here
    told = refused(main, words.replace("...", "--task Cartpole").format(**places).split(), capsys)
    assert told.startswith("eval-shapers: error: ") and message.format(**places) in told
    assert not list(places["work"].iterdir())


def test_too_many_environments_are_one_line(tmp_path, capsys):
    (tmp_path / "a.py").write_text("def compute_reward(pole_angle):\n    return pole_angle\n")
    words = f"--task Cartpole --candidates {tmp_path}/a.py --check --device cpu --num_envs_per_candidate 100000000000"
    assert main(words.split()) == 2
    assert "out of memory; give fewer environments" in capsys.readouterr().err


def test_existing_run_folder_is_refused_and_unchanged(tmp_path, capsys):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "config.yaml").write_text("mine")
    run(taken, *CARTPOLE_QUICK, expect=2)
    assert "already holds a run; use --resume, or give a new folder" in capsys.readouterr().err
    assert [path.name for path in taken.iterdir()] == ["config.yaml"]
    assert (taken / "config.yaml").read_text() == "mine"


def test_file_as_run_folder_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    run(tmp_path / "file", *CARTPOLE_QUICK, expect=2)
    assert "is a file; give a new folder" in capsys.readouterr().err


@pytest.mark.slow
def test_non_utf_8_candidate_fails_alone(tmp_path):
    good, bad = write_candidates(tmp_path / "files", {"good": COSINE, "bad": COSINE})
    content = b"# caf\xe9, saved as latin-1\n" + COSINE.encode()
    bad.write_bytes(content)
    words = ["--num_envs_per_candidate", 2, "--learning_iterations", 1, "--no_baselines"]
    output = run(tmp_path / "run", *CARTPOLE_QUICK, "--candidates", good, bad, *words)
    rows = results(output)
    assert rows["status"].to_dict() == {"good": "ok", "bad": "failed at load"}
    assert rows.loc["bad", "error"] == f"{bad}:1: is not UTF-8 text from here on; save the file as UTF-8"
    assert (output / "candidates" / "bad" / "source.py").read_bytes() == content


@pytest.mark.slow
def test_run_with_only_failed_candidates_returns_1(tmp_path, capsys):
    sources = {"syntax": "def compute_reward(:\n", "nothing": "x = 1\n"}
    paths = write_candidates(tmp_path / "files", sources)
    output = run(tmp_path / "run", *CARTPOLE_QUICK, "--candidates", *paths, expect=1)
    shown = capsys.readouterr().out
    assert "syntax" in shown
    assert "nothing" in shown
    rows = results(output)
    assert list(rows["status"]) == ["failed at load"] * 2
    assert "syntax.py:1" in rows.loc["syntax", "error"]


@pytest.mark.slow
def test_files_without_the_requested_functions_are_skipped(tmp_path, capsys):
    """Skipped files are neither ranked nor failed; a file that is not a candidate fails."""
    observation = "def compute_observation(dof_pos):\n    return dof_pos * 1.0\n"
    paths = write_candidates(tmp_path / "files", {"good": COSINE, "sees": observation, "nothing": "x = 1\n"})
    size = ["--num_envs_per_candidate", 2, "--learning_iterations", 1, "--no_baselines", "--seeds", 2]
    words = [*CARTPOLE_QUICK, "--shaper_types", "compute_reward,compute_done", *size, "--candidates"]
    output = run(tmp_path / "run", *words, *paths)
    captured = capsys.readouterr()
    assert "skipped, because they define none of compute_reward, compute_terminal: sees\n" in captured.err
    assert "skipped, because they define none of the functions asked for (1): sees\n" in captured.out
    assert "failed (1 of 2 candidates):\n  nothing (failed at load)\n" in captured.out
    rows = results(output)
    expected = {"good": "ok", "sees": "skipped", "nothing": "failed at load"}
    assert {name: set(rows.loc[name, "status"]) for name in expected} == {name: {x} for name, x in expected.items()}
    assert rows.loc["sees", "error"].str.contains("defines none of the asked compute_reward, compute_terminal").all()
    assert main(["--resume", str(output)]) == 0
    # alone with a failed one it does not make the run a success
    run(tmp_path / "failed", *words, *paths[1:], expect=1)


@pytest.mark.parametrize("positions", [["0,2"], ["0", "2"], ["2,", "0"]])
def test_lists_accept_commas_and_spaces(tmp_path, positions):
    paths = write_candidates(tmp_path / "files", {"a": COSINE, "b": COSINE, "c": COSINE})
    args = _parsed(["--task", "Cartpole", "--candidate_idx", *positions])
    assert sorted(source.name for source in read_candidates("Cartpole", paths, args.candidate_idx)) == ["a", "c"]


@pytest.mark.parametrize(
    "raised, code, message",
    [
        (KeyboardInterrupt(), 130, "stopped"),
        (KeyboardInterrupt("stopped; resume with: x"), 130, "stopped; resume with: x"),
        (UserError("no such\ntask"), 2, "error: no such task"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "error: "),
        (MemoryError(), 2, "error: out of memory; give fewer environments"),
        (RuntimeError("cannot allocate memory"), 2, "error: out of memory; give fewer environments"),
    ],
)
def test_what_ends_a_command_is_one_line_and_a_code(capsys, raised, code, message):
    assert command("name", Mock(side_effect=raised), []) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"name: {message}") and err.count("\n") == 1


@pytest.mark.parametrize("raised", [RuntimeError("a fault of the program"), FileNotFoundError("a.csv")])
def test_a_fault_of_the_program_keeps_its_traceback(raised):
    with pytest.raises(type(raised)):
        command("name", Mock(side_effect=raised), [])


@pytest.mark.slow
def test_ctrl_c_in_a_run_prints_the_resume_command(tmp_path, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(session_module, "build_env", interrupted)
    (path,) = write_candidates(tmp_path / "files", {"a": COSINE})
    size = ["--num_envs_per_candidate", 2, "--learning_iterations", 1, "--no_baselines"]
    output = run(tmp_path / "run", *CARTPOLE_QUICK, "--candidates", path, *size, expect=130)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"eval-shapers: stopped; resume with: {resume_command(output)}"
    monkeypatch.undo()
    assert main(shlex.split(last.partition("resume with: ")[2])[-2:]) == 0


@pytest.mark.parametrize("at", ["finish", "_write_page"])
def test_ctrl_c_after_the_ranking_says_that_the_run_is_complete(tmp_path, capsys, monkeypatch, at):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(console, "finish", lambda result: 0)
    monkeypatch.setattr(console, at, interrupted)
    rows = [Result("a", 0, "ok", fitness=1.0)]
    assert console.conclude(RunResult(tmp_path, True, "height", rows, rank(rows)), None) == 0
    told = capsys.readouterr().err
    assert told.startswith("stopped; the run is complete; ")
    assert told.endswith(f"envcoder-bench report {tmp_path} writes its page\n")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["eval_shapers.py", "auto_shape.py", "eval_policies.py"])
def test_checkout_scripts_run_the_commands(script, tmp_path):
    root = PACKAGE.parent
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["python", script, "--help"], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: python {script} ")


def test_help_examples_are_valid_commands(capsys, monkeypatch):
    monkeypatch.chdir(PACKAGE.parent)
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out.partition("examples:\n")[2].replace("\\\n", "")
    start = f"  {invocation('eval-shapers')} "
    examples = [line[len(start) :] for line in shown.splitlines() if line.startswith(start)]
    assert len(examples) >= 6
    for example in examples:
        args = build_parser().parse(shlex.split(example))
        for path in [*(args.candidates or []), *filter(None, [args.fitness])]:
            assert Path(path).exists(), path


def test_empty_words_are_no_paths(capsys):
    for words in (["--task", "Cartpole", "--candidates", ""], ["--resume", ""]):
        assert f"an argument is empty, after {words[-2]}" in refused(main, words, capsys)
    assert "an argument is empty" in refused(verbs.main, ["report", ""], capsys)
