"""An exported policy acts as the one in the run, and without this package it reaches the same fitness."""

import importlib.util
import json
import runpy
import shutil
import sys
from pathlib import Path

import mujoco
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from helpers import QUICK, refused, run, write_candidates

from envcoder_bench import make_env
from envcoder_bench.__main__ import main
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.export import write
from envcoder_bench.export.write import export_policy
from envcoder_bench.run.folder.policies import load_policy, open_run
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare_one

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "play_policy.py"
ROD = f"{Path(__file__).resolve().parents[1] / 'sources' / 'isaac_task' / 'pendulum.py'}:Rod"
EPISODES = 12
CANDIDATES = {
    "plain": "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n",
    # wider observations, of which the first is computed; an action that pushes with and against a spring
    "springy": """
ACTION_DIM = 1
def compute_observation(cart_pos, cart_vel, pole_angle, pole_vel, actions):
    return torch.stack((cart_pos + 0.5 * cart_vel, pole_angle, pole_vel, cart_vel, actions[:, 0]), dim=-1)
def compute_torque(action, cart_pos):
    return torch.stack((100.0 * action[:, 0] - 5.0 * cart_pos, torch.zeros_like(cart_pos)), dim=-1)
""",
    "broken": "def compute_reward(pole_angle):\n    raise RuntimeError('on purpose')\n",
}
ARGUMENTS = [
    *QUICK, "--task", "Cartpole", "--num_envs_per_candidate", 16, "--learning_iterations", 2, "--seeds", 2,
    f"evaluation.num_envs={EPISODES}", f"evaluation.final_episodes={EPISODES}", "evaluation.points=1",
]  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    return run(folder / "run", *ARGUMENTS, "--candidates", *write_candidates(folder / "files", CANDIDATES))


def observations(width):
    return 3.0 * torch.randn(200, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name, seed", [("plain", 0), ("springy", 1), ("unshaped", 0)])
def test_onnxruntime_and_torch_reproduce_the_actions(trained, tmp_path, name, seed):
    policy = load_policy(trained, name, seed)
    obs = observations(policy.obs_dim)
    wanted = policy(obs.clamp(-5.0, 5.0)).numpy()
    done = export_policy(trained, name, seed, "onnx", tmp_path)
    session = onnxruntime.InferenceSession(done.policy)
    np.testing.assert_allclose(session.run(["actions"], {"obs": obs.numpy()})[0], wanted, rtol=0, atol=1e-5)
    done = export_policy(trained, name, seed, "torchscript", tmp_path)
    np.testing.assert_allclose(torch.jit.load(done.policy)(obs)[0], wanted, rtol=0, atol=1e-5)
    about = json.loads(done.description.read_text())
    stem = f"policy_seed_{seed}"
    assert about["files"] == {"onnx": f"{stem}.onnx", "torchscript": f"{stem}.pt", "model": "model.xml"}
    (tmp_path / f"{stem}.json").write_text(json.dumps({**about, "policy_sha256": "of another policy"}))
    done = export_policy(trained, name, seed, "torchscript", tmp_path)
    assert json.loads(done.description.read_text())["files"] == {"torchscript": f"{stem}.pt", "model": "model.xml"}
    assert {file.name for file in tmp_path.iterdir()} == {
        "model.xml", *(f"policy_seed_{seed}{suffix}" for suffix in (".onnx", ".pt", ".json"))
    }  # fmt: skip


def test_exported_commands_match_the_environment(trained, tmp_path):
    own, policy = open_run(trained), load_policy(trained, "plain")
    group = prepare_one(own.spec, own.source("plain"), policy.seed)
    env = build_env(own.spec, [group.shaping], [policy.seed], EPISODES)
    obs = observations(4)[:EPISODES]
    wanted = env.dispatch.command(policy(obs.clamp(-5.0, 5.0)), 0)
    session = onnxruntime.InferenceSession(export_policy(trained, "plain", output=tmp_path).policy)
    np.testing.assert_allclose(session.run(["command"], {"obs": obs.numpy()})[0], wanted, rtol=0, atol=400 * 1e-5)


def test_exported_policy_reaches_the_same_fitness_in_plain_mujoco(trained, tmp_path):
    about = json.loads(export_policy(trained, "plain", output=tmp_path).description.read_text())
    own, policy = open_run(trained), load_policy(trained, "plain")
    group = prepare_one(own.spec, own.source("plain"), policy.seed)
    env = build_env(own.spec, [group.evaluation], [policy.seed], EPISODES)
    played = run_episodes(env, policy, 1, EVALUATION_STEP).fitness[0]
    assert float(played.mean()) == pytest.approx(own.row("plain", policy.seed).fitness, abs=1e-4)
    env.begin_all(EVALUATION_STEP)
    starts = [(env.state["dof_pos"][k].numpy().copy(), env.state["dof_vel"][k].numpy().copy()) for k in range(EPISODES)]
    play = runpy.run_path(str(EXAMPLE))["play"]
    fitness = [play(tmp_path, *start) for start in starts]
    assert 0.02 < np.mean(fitness) < 0.98  # a policy in training, so that episodes differ
    np.testing.assert_allclose(fitness, played, rtol=0, atol=0.02)
    assert np.mean(fitness) == pytest.approx(about["fitness"], abs=0.01)


def test_example_script_runs_without_the_package(trained, tmp_path, monkeypatch, capsys):
    export_policy(trained, "human", output=tmp_path)
    for name in ("envcoder_bench", "mujoco_batches", "isaacgym_mujoco"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it, or of a part of it, is an error
    monkeypatch.setattr(sys, "argv", ["play_policy.py", str(tmp_path)])
    capsys.readouterr()
    runpy.run_path(str(EXAMPLE), None, "__main__")
    assert capsys.readouterr().out.startswith("fitness 0.")


def test_description_has_inputs_outputs_and_rates(trained, tmp_path):
    about = json.loads(export_policy(trained, "plain", output=tmp_path).description.read_text())
    assert [column["reads"] for column in about["input"]["columns"]] == [
        ["cart_pos"], ["cart_vel"], ["pole_angle"], ["pole_vel"],
    ]  # fmt: skip
    assert about["state"]["pole_vel"]["unit"] == "rad/s" and len(about["state"]) == 4
    command = about["outputs"]["command"]
    properties = onnx.load(tmp_path / about["files"]["onnx"]).metadata_props
    assert {entry.key: entry.value for entry in properties} == {
        **{"joint_names": "slider_to_cart,cart_to_pole", "joint_effort_limits": "400,0", "command_kind": "effort"},
        **{"control_dt": "0.0166", "action_delay": "0", "history_length": "1"},
    }
    assert (command["kind"], command["in_file"], command["actuated"]) == ("effort", True, [0])
    assert command["weight"] == [[400.0], [0.0]] and command["bias"] == [0.0, 0.0]
    assert command["joints"] == ["slider_to_cart", "cart_to_pole"]
    assert about["rates"]["control_hz"] == pytest.approx(1 / 0.0166)
    assert about["input"]["function"]["file"] == "candidates/human/source.py"
    model = mujoco.MjModel.from_xml_path(str(tmp_path / about["files"]["model"]))
    assert model.opt.timestep == about["rates"]["physics_step_s"] == 0.0083
    assert [model.actuator(k).name for k in range(model.nu)] == [command["joints"][i] for i in command["actuated"]]


def test_state_dependent_command_is_not_exported(trained, tmp_path):
    done = export_policy(trained, "springy", output=tmp_path)
    about = json.loads(done.description.read_text())
    assert not done.command and not about["outputs"]["command"]["in_file"]
    assert about["outputs"]["actions"]["function"]["file"] == "candidates/springy/source.py"
    assert about["input"]["columns"][0] == {"reads": ["cart_pos", "cart_vel"], "copied": False}
    assert about["input"]["columns"][4] == {"reads": ["actions[0]"], "copied": True}
    assert [one.name for one in onnxruntime.InferenceSession(done.policy).get_outputs()] == ["actions"]


def test_isaac_gym_task_is_exported_without_command_and_model(tmp_path):
    (tmp_path / "fitness.py").write_text(
        '"""Upright."""\ndef compute_fitness(dof_pos):\n    return dof_pos[:, 0].cos()\n'
    )
    words = [*QUICK[:4], "--task", ROD, "--fitness", tmp_path / "fitness.py", "--num_envs_per_candidate", 4]
    words += ["--no_baselines", "--learning_iterations", 1, "evaluation.num_envs=2", "evaluation.final_episodes=2"]
    candidate = write_candidates(tmp_path, {"mine": "def compute_reward(dof_pos):\n    return dof_pos[:, 0].cos()\n"})
    folder = run(tmp_path / "run", *words, "train.params.config.horizon_length=8", "--candidates", *candidate)
    done = export_policy(folder, "mine")
    about = json.loads(done.description.read_text())
    assert (done.model, done.command, about["files"]["model"]) == (None, False, None)
    assert about["outputs"]["command"] == {"in_file": False, "why_not": "the task's own code converts actions"}
    assert make_env(ROD, candidate[0], 3, device="cpu").reset()[0].shape == (3, about["input"]["shape"][1])


@pytest.mark.parametrize(
    "words, message",
    [
        ("{run} --candidate plane", "no candidate 'plane' (did you mean plain?); human, unshaped, plain"),
        ("{run} --candidate plain --seed 7", "no seed 7: the seeds of this run are 0, 1"),
        ("{run} --candidate broken", "candidate 'broken' has no policy of seed 0: it failed: "),
        ("{run} --format onx", "unknown format 'onx' (did you mean onnx?); there are onnx, torchscript"),
        ("{run}/candidates", "it is not the folder of a run (no config.yaml)"),
        ("{run}/config.yaml", "it is not the folder of a run: it is a file"),
        ("{run}/nowhere", "it is not the folder of a run: no such folder"),
        ("", "the following arguments are required: RUN"),
        ("{run} --candidate plain --output {run}/config.yaml", "config.yaml is a file: give a folder"),
        (
            "{foreign} --candidate plain",
            "is of another task or candidate: it has 7 observations and 1 actions, and plain",
        ),
        ("{damaged} --candidate plain", ".pth cannot be read: it is damaged, or not a policy"),
        ("{unfit} --candidate plain", "the policy does not fit the network of the config"),
    ],
)
def test_bad_input_is_refused_and_changes_no_file(trained, tmp_path, capsys, words, message):
    before = sorted(trained.rglob("*"))
    folders = {"run": trained}
    for name in ("foreign", "damaged", "unfit"):
        if name in words:
            folders[name] = spoilt(trained, tmp_path / name, name)
    assert main(["export", *words.format(**folders).split()]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == "" and captured.err.startswith("envcoder-bench export: error: ")
    assert sorted(trained.rglob("*")) == before


@pytest.mark.parametrize("difference", [2.0 * write.TOLERANCE, float("nan")])
def test_a_file_that_acts_otherwise_is_not_written(trained, tmp_path, monkeypatch, difference):
    monkeypatch.setattr(write, "_difference", lambda *_: difference)
    with pytest.raises(RuntimeError, match=f"actions differ by {difference:.3g} from those of"):
        export_policy(trained, "plain", output=tmp_path)
    assert not list(tmp_path.iterdir())


def spoilt(trained, copy, how):
    """A copy of the run whose policy of the candidate plain is another's, damaged, or of another network."""
    shutil.copytree(trained, copy)
    for file in copy.glob("candidates/plain/policy*.pth"):
        saved = torch.load(file, weights_only=True)
        model = saved["model"]
        if how == "foreign":
            model["a2c_network.actor_mlp.0.weight"] = torch.zeros(32, 7)
            for key in ("running_mean", "running_var"):
                model[f"running_mean_std.{key}"] = torch.ones(7)
        elif how == "unfit":
            model["a2c_network.actor_mlp.2.weight"] = torch.zeros(8, 32)
        torch.save(saved, file)
        if how == "damaged":
            file.write_bytes(file.read_bytes()[:100])
    return copy


def test_missing_package_is_reported(trained, capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "onnx" else found(name, *a))
    told = refused(main, ["export", trained], capsys)
    assert "needs the package onnx: pip install 'envcoder-bench[export]'" in told
