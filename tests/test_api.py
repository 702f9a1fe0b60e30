"""The functions of ``import envcoder_bench``: the stop button, flags by their names, and what notebooks show."""

import argparse
import inspect
import json
import math
import os
import re
import signal
import threading
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch

import envcoder_bench
from envcoder_bench import (
    Reporter,
    Stopped,
    UserError,
    check,
    describe,
    evaluate,
    extend,
    make_env,
    resume,
    stress_run,
)
from envcoder_bench.cli.eval_shapers import build_parser
from envcoder_bench.report import progress
from envcoder_bench.run.hooks import StopRequest
from envcoder_bench.run.inputs import override_words, read_candidates
from envcoder_bench.shaping.contract import CandidateError
from envcoder_bench.shaping.loading import load_candidate

ROOT = Path(envcoder_bench.__file__).resolve().parents[1]
GAIN = 0.5
SHAPE = (1.0, 2)
QUICK = dict(
    num_envs_per_candidate=2, learning_iterations=4, sim="mujoco_cpu", device="cpu", no_baselines=True,
    compile_shapers=False,
    overrides={"evaluation.num_envs": 2, "evaluation.final_episodes": 2, "task.env.episodeLength": 20},
)  # fmt: skip


def scaled(x):
    return GAIN * SHAPE[0] * x


def compute_reward(pole_angle: torch.Tensor):
    return scaled(math.pi * torch.cos(pole_angle))


class Interrupts(Reporter):
    """Presses Ctrl-C so many times in the second iteration."""

    def __init__(self, times):
        self.times = times

    def iteration_done(self, iteration, env_steps, best):
        if iteration == 2:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_ctrl_c_saves_and_raises_stopped_with_the_call_that_resumes(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped) as stop:
        evaluate("Cartpole", {"calm": compute_reward}, output_dir="run", reporter=Interrupts(1), **QUICK)
    assert str(stop.value) == "stopped after iteration 2 of 4; envcoder_bench.resume('run')"
    assert signal.getsignal(signal.SIGINT) is handler and (tmp_path / "run" / "checkpoint.pth").is_file()
    result = resume("run", video=0)
    assert result.complete and (tmp_path / "run" / "report.html").is_file()
    whole = evaluate("Cartpole", {"calm": compute_reward}, output_dir="whole", **QUICK)
    assert result.results["fitness"].equals(whole.results["fitness"])
    with pytest.raises(KeyError, match=r"no policy of 'clam' \(did you mean calm\?\)"):
        _ = whole.policies["clam", 0]
    with pytest.raises(KeyError, match="the seeds of calm are 0"):
        _ = whole.policies["calm", 7]
    with pytest.raises(UserError, match=r"^the keys are pairs"):
        _ = whole.policies["calm"]
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_second_ctrl_c_ends_at_once(tmp_path):
    with pytest.raises(Stopped, match=r"^stopped; envcoder_bench\.resume\('.*run'\)$"):
        evaluate("Cartpole", {"calm": compute_reward}, output_dir=tmp_path / "run", reporter=Interrupts(2), **QUICK)
    assert not (tmp_path / "run" / "checkpoint.pth").exists()


@pytest.mark.parametrize(
    "given", [dict(seeds=0), dict(sedes=1), dict(overrides="seeds=[1"), dict(fitness="nowhere.py")]
)
def test_user_errors_have_no_chain_and_are_one_line_in_a_notebook(given):
    with pytest.raises(UserError) as caught:
        evaluate("Cartpole", {"calm": compute_reward}, **given)
    assert len(caught.value._render_traceback_()) == 1
    assert "another exception" not in (text := "".join(traceback.format_exception(caught.value)))
    assert "direct cause" not in text


# flags


def test_every_flag_of_the_command_has_its_name_in_python(tmp_path):
    """They are arguments of evaluate, keys of the config, or functions."""
    known = (argparse._HelpAction, argparse._VersionAction)
    names = {action.dest for action in build_parser()._actions if not isinstance(action, known)}
    arguments = set(inspect.signature(evaluate).parameters) | {"task", "candidates", "overrides"}
    translated = {"gpu_id", "half_step", "trainer", "no_baselines", "task_config", "train_config", "race", "wandb"}
    printed = {"json"}  # how the command prints what evaluate returns
    after = {"stress", "stress_draws", "stress_episodes", "rank_by"}  # ``stress_run`` with the run that evaluate made
    rest = names - arguments - translated - printed - after - set(envcoder_bench.__all__)
    cfg = read_config()
    assert rest <= set(type(cfg).model_fields)


def read_config(**settings):
    from envcoder_bench.run.config import compose_config

    return compose_config("Cartpole", override_words("Cartpole", (), None, settings))


def test_flags_mean_what_they_mean_on_the_command_line(tmp_path):
    yaml = tmp_path / "train.yaml"
    yaml.write_text("params: {config: {gamma: 0.5}}\n")
    cfg = read_config(race=True, wandb=False, no_baselines=True, gpu_id=1, trainer="ppo", train_config=str(yaml))
    assert (cfg.race.enabled, cfg.wandb.enabled, cfg.baselines, cfg.device) == (True, False, False, "cuda:1")
    assert cfg.train.params.config.gamma == 0.5
    with pytest.raises(UserError, match="--gpu_id and --device both"):
        read_config(gpu_id=0, device="cpu")
    with pytest.raises(UserError, match="video must be a whole number"):
        evaluate("Cartpole", video=-1)


def test_check_and_describe_are_functions(tmp_path):
    told = envcoder_bench.describe("Cartpole")
    assert "pole_angle" in told and "cartpole/human.py" in told
    result = envcoder_bench.check("Cartpole", {"calm": compute_reward}, sim="mujoco_cpu", device="cpu", num_envs=6)
    assert result.passed and "calm" in str(result)


# functions


def test_functions_become_files_with_what_they_use(tmp_path):
    (source,) = read_candidates("Cartpole", {"calm": [compute_reward]})
    module = {"torch": torch, "math": math}
    exec(source.source, module)
    angle = torch.linspace(-1, 1, 5)
    assert torch.equal(module["compute_reward"](angle), compute_reward(angle))
    assert source.source.startswith("GAIN = 0.5\nSHAPE = (1.0, 2)\n") and "class Interrupts" not in source.source


def upright(pole_angle):
    return GAIN * torch.cos(pole_angle)


def compute_rewards(pole_angle):
    return torch.cos(pole_angle)


def test_function_of_another_name_is_the_reward():
    (source,) = read_candidates("Cartpole", {"calm": upright})
    assert list(load_candidate("calm", source.source, "calm.py").functions) == ["compute_reward"]
    (source,) = read_candidates("Cartpole", {"calm": compute_rewards})  # probably misspelt
    with pytest.raises(CandidateError, match="did you mean compute_reward"):
        load_candidate("calm", source.source, "calm.py")


LOST = torch.ones(3)


def uses_a_tensor(pole_angle):
    return LOST * pole_angle


def test_functions_without_a_text_are_refused_with_a_remedy():
    scale = 2.0
    module: dict = {}
    exec("def compute_reward(pole_angle): return pole_angle", module)
    cases = [
        (lambda pole_angle: pole_angle, "is not a function that def defines: give the text"),
        (module["compute_reward"], "the source of compute_reward is not known"),
        (torch.cos, "is not a function that def defines"),
        (uses_a_tensor, "uses_a_tensor uses LOST, a Tensor that cannot be written"),
        (closure(scale), "uses scale of the function around it"),
    ]
    for function, message in cases:
        with pytest.raises(UserError, match=f"candidate calm: .*{message}"):
            read_candidates("Cartpole", {"calm": function})


def closure(scale):
    def compute_reward(pole_angle):
        return scale * pole_angle

    return compute_reward


CHATTY = """
def compute_reward(pole_angle):
    print("looking at", pole_angle.shape)
    return float(pole_angle.mean()) + torch.cos(pole_angle)
"""


@pytest.mark.slow
def test_prints_of_a_candidate_are_shown_to_a_limit_and_logged(tmp_path, capfd):
    result = evaluate("Cartpole", {"chatty": CHATTY}, output_dir=tmp_path / "run", **QUICK)
    assert result.complete and "keeps values between calls" not in (text := (tmp_path / "run" / "run.log").read_text())
    shown = capfd.readouterr().out.splitlines()
    assert len(shown) == 21 and shown[-1] == "chatty prints more, which is in run.log"
    assert text.count("chatty prints: looking at torch.Size") > 20


# notebooks


def test_bar_in_a_notebook_needs_no_terminal(monkeypatch, capsys):
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    bar = progress.Progress(10)
    bar.update(10, 1000, ("calm", 1.0))
    bar.close()
    assert "iteration 10/10 |" in capsys.readouterr().err


SHORT = {"evaluation.num_envs": 2, "evaluation.final_episodes": 2, "task.env.episodeLength": 20}


@pytest.mark.slow
def test_notebook_runs(tmp_path, monkeypatch, capsys):
    import linecache

    book = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
    assert book["nbformat"] == 4
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "__main__"}
    for number, cell in enumerate(book["cells"]):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            text, file = "".join(cell["source"]), f"<cell {number}>"
            text = text.replace("learning_iterations=10", f"learning_iterations=1, overrides={SHORT}")
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            exec(compile(text, file, "exec"), names)
    result = names["result"]
    assert result._repr_html_().startswith("<pre>fitness: ") and result._repr_html_().endswith("</pre>")
    (result.folder / "report.html").touch()
    assert result._repr_html_().endswith('report.html">report.html</a>')
    assert names["result"].complete and "calm" in capsys.readouterr().out


def test_functions_are_written_after_those_that_they_use():
    from envcoder_bench.shaping.functions import source_of

    text = source_of([uses_helper, also_uses_helper])
    assert text.index("def helper") < text.index("def uses_helper") and text.count("def helper") == 1
    exec(text, found := {})
    assert found["also_uses_helper"](1) == found["uses_helper"](1) == 2


def helper(x):
    return x + 1


def uses_helper(x, h=helper):
    return h(x)


def also_uses_helper(x, *, h=helper):
    return h(x)


def test_functions_that_cannot_be_a_file_are_refused():
    from envcoder_bench.shaping.functions import source_of

    def around(k):
        def compute_reward(x, kk=k):
            # a comment at the left margin must not matter
            return x * kk

        return compute_reward

    with pytest.raises(ValueError, match="a default of compute_reward uses k of the function around it"):
        source_of([around(2)])
    with pytest.raises(ValueError, match="two functions are called helper"):
        source_of([helper, helper])


def test_function_with_a_line_at_the_left_margin_is_read():
    from envcoder_bench.shaping.functions import source_of

    if True:

        def indented(x):
            # a comment at the left margin
            return x + 2

    exec(source_of([indented]), found := {})
    assert found["indented"](1) == 3


def test_a_stop_request_of_several_threads_keeps_the_handlers_of_the_main_thread():
    before = signal.getsignal(signal.SIGINT)
    stop = StopRequest()
    errors = []

    def other():
        try:
            with stop:
                pass
        except BaseException as error:
            errors.append(error)

    with stop:
        inside = signal.getsignal(signal.SIGINT)
        with stop:
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert not errors and signal.getsignal(signal.SIGINT) == inside != before
    assert signal.getsignal(signal.SIGINT) == before


# types of arguments


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("task", 5, "a task's name, its folder or module:Class"),
        ("candidates", 5, "files or folders, or texts or functions by name"),
        ("candidates", [None], "files or folders, or texts or functions by name"),
        ("candidates", b"mine.py", "files or folders, or texts or functions by name"),
        ("sweep", 5, r"values by name, \{'effort': \[0, 1\]\}"),
        ("terms", "yes", "True or False"),
        ("num_envs", "10", "a whole number"),
        ("num_envs", True, "a whole number"),
        ("shaper_types", 5, r"names of functions, such as \['compute_reward'\]"),
        ("overrides", [5], r"texts such as \['seed=1'\], or values by key, \{'seed': 1\}"),
        ("candidate_idx", 5, r"positions, such as \[0, 2\] or '0,2'"),
        ("output_dir", ["a"], "the path of a new folder"),
        ("reporter", 5, "an envcoder_bench.Reporter"),
        ("stop", 5, "an envcoder_bench.StopRequest"),
        ("trainer", int, "the name of a trainer"),
        ("train_config", 5, "the path of a YAML file"),
        ("no_baselines", "yes", "True or False"),
        ("learning_iterations", 10**9, "a whole number of at least 1 and at most 10,000,000"),
        ("evaluation.points", 10**6, "a whole number of at least 1 and at most 10,000"),
    ],
)
def test_argument_of_another_type_is_named(tmp_path, name, value, words):
    arguments = {"task": "Cartpole", "candidates": {"calm": CHATTY}, "output_dir": tmp_path / "run", name: value}
    with pytest.raises(UserError, match=rf"^{re.escape(name)} must be {words}, got "):
        evaluate(**arguments)
    assert not list(tmp_path.iterdir())


def test_argument_of_another_name_is_answered_with_the_names():
    for call, name in ((resume, "seeds"), (extend, "iterations")):
        with pytest.raises(UserError, match=rf"^{call.__name__}: got an unexpected keyword argument '{name}'; "):
            call("runs/none", **{name: 3})


def test_arguments_of_stress_run_have_types_and_a_text_is_the_name_of_a_candidate(monkeypatch):
    from envcoder_bench.stress import measure

    for given, words in (({"physics": "no"}, "True or False"), ({"device": None}, "auto, cpu or cuda:N")):
        with pytest.raises(UserError, match=f"^{next(iter(given))} must be {words}, got "):
            stress_run("runs/none", **given)
    monkeypatch.setattr(measure, "stress_run", lambda _, asked: argparse.Namespace(stress=asked.candidates))
    assert [*stress_run("runs/none", candidates="gentle")] == ["gentle"]
    assert stress_run("runs/none", candidates=("gentle", "calm")) == ("gentle", "calm")


@pytest.mark.parametrize("call", [resume, extend, evaluate, check, describe, make_env, stress_run])
def test_every_function_names_the_argument_of_another_type(call):
    with pytest.raises(UserError, match=r"^(folder|task|run) must be .*, got 5$"):
        call(5)
    name = call.__name__
    with pytest.raises(
        UserError, match=rf"^{name}: too many positional arguments; its arguments are (folder|task|run), "
    ):
        call("x", None, 3, 4, 5)
    with pytest.raises(UserError, match=rf"^{name}: missing a required argument: '(folder|task|run)'; "):
        call()


def test_numpy_numbers_paths_and_generators_are_taken(tmp_path):
    (tmp_path / "calm.py").write_text("def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n")
    result = check("Cartpole", (path for path in tmp_path.glob("*.py")), num_envs=np.int64(12), candidate_idx=range(1))
    assert "calm" in str(result)
