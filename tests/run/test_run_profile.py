"""--profile: its files, output and times; nothing else changes."""

import json
import threading

import pytest
from helpers import CARTPOLE_QUICK, assert_same_weights, run, weights, write_candidates

from envcoder_bench.core import profiling
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.profiling import EVALUATION, REST, RESULTS, span
from envcoder_bench.env.episode_stats import EpisodeStats
from envcoder_bench.report.breakdown import render_breakdown
from envcoder_bench.results.logs import CurveLog
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.train import session as training
from envcoder_bench.run.train.profile import RunProfile
from envcoder_bench.tasks.sim_task import SimTask
from envcoder_bench.trainers.ppo.block import LearnerBlock

pytestmark = pytest.mark.slow

CANDIDATES = {
    "still": "def compute_reward(pole_angle):\n    return torch.cos(pole_angle)\n",
    "counting": "calls = []\ndef compute_reward(pole_angle):\n    calls.append(1)\n    return pole_angle.cos()\n",
}
HORIZON = 4


def cartpole(folder, tmp_path, *words):
    files = write_candidates(tmp_path / "files", CANDIDATES)
    size = [f"train.params.config.horizon_length={HORIZON}", "--num_envs_per_candidate", 8]
    return run(folder, *CARTPOLE_QUICK, *size, "--candidates", *files, *words)


def test_profile_shows_all_parts_and_does_not_change_results(tmp_path, capsys):
    words = ["--learning_iterations", 9, "evaluation.points=1"]
    profiled = cartpole(tmp_path / "profiled", tmp_path, *words, "--profile")
    out = " ".join(capsys.readouterr().out.split())  # lines may break anywhere
    plain = cartpole(tmp_path / "plain", tmp_path, *words)
    for name in ("human", *CANDIDATES):
        assert_same_weights(weights(profiled, name), weights(plain, name))
    for file in ("results.csv", "curves.csv", "components.csv", "points.csv"):
        assert (profiled / file).read_bytes() == (plain / file).read_bytes()
    assert not (plain / "profile").exists()
    assert "bare physics" not in capsys.readouterr().out

    for part in ("physics", "target", "reward", "terminal", "initial state", "goal", "observation", "policy", "update"):
        assert part in out
    assert "iterations 3 to 7" in out
    assert "% of the speed of its bare physics" in out


def test_breakdown_assigns_time_to_each_part(tmp_path, monkeypatch):
    """The clock advances only in patched functions, so that every number of the breakdown is known."""
    now, lock = [0.0], threading.Lock()

    def costs(owner, name, seconds):
        real = getattr(owner, name)

        def work(*args, **kwargs):
            with lock:  # groups learn in threads of their own
                now[0] += seconds
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, work)

    monkeypatch.setattr(profiling.HostClock, "stamp", lambda self: now[0])
    costs(SimTask, "step", 1.0)
    costs(LearnerBlock, "act", 10.0)
    costs(LearnerBlock, "update", 1000.0)
    costs(EpisodeStats, "add", 0.25)
    costs(CurveLog, "flush", 7.0)
    costs(training, "run_episodes", 50_000.0)
    words = ["--learning_iterations", 9, "evaluation.points=9", "--no_baselines", "--profile"]
    read = json.loads((cartpole(tmp_path / "run", tmp_path, *words) / "profile" / "breakdown.json").read_text())
    groups, steps = len(CANDIDATES), 5 * HORIZON
    expected = {
        "physics": steps * 1.0, "policy": steps * groups * 10.0, "update": 5 * groups * 1000.0, REST: steps * 0.25,
        RESULTS: 5 * 7.0,
    }  # fmt: skip
    assert {name: read["seconds"][name] for name in expected} == expected
    # an evaluation's steps are its own, not physics of the training
    assert read["seconds"][EVALUATION] > 5 * 50_000.0
    counts = {"physics": steps, "policy": steps, "update": 5, EVALUATION: 5}
    assert {name: read["counts"][name] for name in counts} == counts
    assert read["ms_per_iteration"] == 1e3 * sum(expected[name] for name in expected if name != RESULTS) / 5


def shown(profile):
    breakdown = profile.finish()
    return "" if breakdown is None else " ".join(render_breakdown(breakdown, 100).split())  # lines may break anywhere


def _profile(folder):
    return RunProfile(folder, compose_config("Cartpole", ["train.params.config.horizon_length=4", "device=cpu"]))


def _train(profile, iterations, total):
    profile.begin(0, total, GroupLayout(2, 3))
    for iteration in range(1, iterations + 1):
        with span("physics"):
            pass
        profile.iteration_done(iteration)
    profile.stop()


@pytest.mark.parametrize(("iterations", "measured"), [(3, "iteration 3:"), (5, "iterations 3 to 5:"), (8, "3 to 7:")])
def test_stopped_run_shows_the_measured_iterations(tmp_path, iterations, measured):
    profile = _profile(tmp_path / "profile")
    _train(profile, iterations, total=100)
    assert profiling._active is None
    assert measured in shown(profile)


@pytest.mark.parametrize(("total", "measured"), [(1, "iteration 1:"), (2, "iteration 2:"), (4, "iterations 3 to 4:")])
def test_short_runs_are_measured_after_fewer_iterations(tmp_path, total, measured):
    profile = _profile(tmp_path / "profile")
    _train(profile, total, total)
    assert measured in shown(profile)


def test_run_stopped_during_warm_up_reports_no_profile(tmp_path, caplog):
    profile = _profile(tmp_path / "profile")
    _train(profile, 2, total=100)
    assert not shown(profile)
    assert "no profile" in caplog.text
    assert not (tmp_path / "profile").exists()


def test_only_the_first_wave_is_measured(tmp_path):
    profile = _profile(tmp_path / "profile")
    _train(profile, 9, total=9)
    first = profile._measured
    _train(profile, 9, total=9)
    assert profile._measured is first
