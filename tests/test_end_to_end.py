"""A new user's run, and the content of its files."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import CARTPOLE_QUICK, TINY_WORDS, results, run, write_candidates
from rl_games.common.gym_compat import gym

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.registry import find_spec

pytestmark = pytest.mark.slow

COLUMNS = [
    "candidate", "seed", "status", "fitness", "fitness_ci_low", "fitness_ci_high", "episodes", "episode_length",
    "shaped_return", "env_steps",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The shipped Cartpole candidates, short."""
    folder = tmp_path_factory.mktemp("end_to_end") / "run"
    size = ["--num_envs_per_candidate", 4, "--learning_iterations", 4, "evaluation.num_envs=3"]  # in two rounds
    return run(folder, *CARTPOLE_QUICK, *size)


def test_run_folder_has_the_documented_files(finished):
    rows = pd.read_csv(finished / "results.csv")
    assert list(rows.columns)[: len(COLUMNS)] == COLUMNS
    assert list(rows["candidate"][:3]) == ["human", "unshaped", "untrained"]
    assert len(rows) >= 7
    assert (rows["status"] == "ok").all()
    assert rows["fitness"].between(0.0, 1.0).all()
    assert (rows["fitness_ci_low"] <= rows["fitness"]).all()
    before, rows = rows[rows["candidate"] == "untrained"], rows[rows["candidate"] != "untrained"]
    assert before["env_steps"].tolist() == [0]
    assert (rows["env_steps"] == 4 * 16 * 4).all()
    summary = json.loads((finished / "summary.json").read_text())
    best = max((r for r in summary["ranking"] if not r["baseline"]), key=lambda r: r["fitness"])
    assert summary["best_candidate"] == best["candidate"]
    curves = pd.read_csv(finished / "curves.csv")
    assert {"iteration", "env_steps", "candidate", "seed", "fitness", "kl", "learning_rate"} <= set(curves.columns)
    assert curves.groupby("candidate")["iteration"].max().eq(4).all()
    components = pd.read_csv(finished / "components.csv")
    assert components.groupby("candidate")["iteration"].max().eq(4).all()
    assert set(components["candidate"]) < set(rows["candidate"])  # of those whose reward has components
    record = json.loads((finished / "run.json").read_text())
    assert record["format"] == 1
    assert record["software"][0]["torch"] == torch.__version__
    assert {"commit", "python", "mujoco", "warp", "device"} <= set(record["software"][0])
    for name in rows["candidate"]:
        assert (finished / "candidates" / name / "source.py").exists()
        assert list((finished / "tensorboard" / name).rglob("events.out.tfevents.*"))
    # the last evaluation of the curves is the one that ranks
    last = curves[curves["iteration"] == 4].set_index("candidate")["fitness"]
    pd.testing.assert_series_equal(
        last.sort_index(), rows.set_index("candidate")["fitness"].sort_index(), check_names=False, rtol=1e-6
    )


@pytest.mark.parametrize("name", ["human", "unshaped", "002_sine_cosine"])
def test_stock_player_reproduces_the_fitness(finished, name):
    folder = RunFolder(finished)
    cfg, sources = folder.read()
    sources = [source for source in sources if source.name == name]
    groups, _ = prepare(RunSpec.of(cfg, sources))
    env = GroupedVecTask(
        build_task(RunSpec.of(cfg), cfg.evaluation.num_envs),
        GroupLayout(1, cfg.evaluation.num_envs),
        [groups[0].evaluation],
        [0],
    )
    player = _stock_player(cfg, env, finished / "candidates" / name / "policy.pth")
    rounds = cfg.evaluation.final_episodes // cfg.evaluation.num_envs
    played = run_episodes(env, lambda obs: player.get_action(obs, True), rounds, EVALUATION_STEP)
    assert float(played.fitness.double().mean()) == pytest.approx(results(finished).loc[name, "fitness"], rel=1e-6)


def _stock_player(cfg, env, checkpoint):
    """rl_games' own player, made as its Runner makes it."""
    from rl_games.torch_runner import Runner  # it imports torch's compiler: seconds

    params = cfg.params
    spaces = {
        "observation_space": gym.spaces.Box(-np.inf, np.inf, (env.obs_dims[0],), np.float32),
        "action_space": gym.spaces.Box(-1.0, 1.0, (env.action_dims[0],), np.float32),
    }
    params["config"].update(env_name="", env_info=spaces, device_name="cpu")
    runner = Runner()
    runner.load({"params": params})
    player = runner.create_player()
    player.restore(str(checkpoint))
    player.has_batch_dimension = True
    return player


def test_human_baseline_learns_to_balance(tmp_path):
    """Two of three seeds, at some evaluation: its reward does not prevent the cart from drifting later."""
    words = ["--num_envs_per_candidate", 32, "--learning_iterations", 12, "--seeds", 3, "task.env.episodeLength=100"]
    words += ["evaluation.points=3", "evaluation.num_envs=4", "evaluation.final_episodes=4"]
    where = ["--sim", "mujoco_cpu", "--device", "cpu", "--task", "Cartpole"]
    # as a candidate: without it, the unshaped baseline would be trained, too
    human = write_candidates(tmp_path / "files", {"mine": find_spec("Cartpole").baseline_path("human").read_text()})
    output = run(tmp_path / "run", *where, "--no_baselines", "--candidates", *human, *words)
    curves = pd.read_csv(output / "curves.csv")
    best = curves.groupby("seed")["fitness"].max()
    assert best.sort_values().iloc[1] > 0.9


def test_candidate_failing_with_one_seed_fails_for_all_seeds(tmp_path):
    flaky = "if float(torch.rand(1)) < 0.5:\n    raise RuntimeError('bad luck')\n"  # which the third seed alone has
    reward = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n"
    paths = write_candidates(tmp_path / "files", {"flaky": flaky + reward, "still": reward})
    words = ["--num_envs_per_candidate", 2, "--learning_iterations", 1, "--seeds", 3, "--no_baselines", *TINY_WORDS]
    rows = results(run(tmp_path / "run", *CARTPOLE_QUICK, "--candidates", *paths, *words)).loc["flaky"]
    assert sorted(rows["seed"]) == list(range(3))
    assert set(rows["status"]) == {"failed at load"}
