"""What a search says before it begins about its cost and its time."""

from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.forecast import PHYSICS_STEPS, Physics, rounded, run_line
from envcoder_bench.search import forecast
from envcoder_bench.search.providers.base import Message, Request
from envcoder_bench.search.providers.budget import Price
from envcoder_bench.search.settings import compose_settings

PROVIDER = SimpleNamespace(default_output_tokens=4096)


def settings(*words):
    return compose_settings(["num_iters=2", "shapers_per_iter=8", *words])[0]


def test_tokens_are_those_of_no_repair_and_of_all():
    request = Request("s" * 4000, (Message("user", "u" * 4000),))
    prompts, replies = forecast.tokens(settings("repair=2"), PROVIDER, request)
    assert (prompts.low, replies.low) == (16 * 2000, 16 * 500)
    assert (prompts.high, replies.high) == (48 * 24_000, 48 * 4096)  # prompt.max_chars is 60,000
    line = forecast.cost_line(settings("repair=2"), PROVIDER, request, Price(2.0, 10.0))
    assert line.startswith("40,000 to 1.3 million tokens, $0.14 to $4.3 (replies of 500 to 4,096 tokens")
    assert "$" not in forecast.cost_line(settings(), PROVIDER, request, None)


def said(monkeypatch, *args):
    """Env-steps of training, evaluation's, and the line that the arguments give."""
    told = []
    line = forecast.forecast.time_line
    with monkeypatch.context() as patch:
        patch.setattr(forecast.forecast, "time_line", lambda cfg, *rest: told.extend(rest) or line(cfg, *rest))
        return forecast.time_line(*args), told


PHYSICS = Physics(1000.0, 2, 500)


def test_steps_are_those_of_all_rounds_and_the_final_evaluation(monkeypatch):
    cfg = resolve("Cartpole", ["num_envs_per_candidate=16", "learning_iterations=5", "seeds=3", "device=cpu"]).config
    horizon = cfg.params["config"]["horizon_length"]
    # the best three so far are in the second round; five are compared with five seeds, before the final evaluation
    groups, final = 3 * (2 * (8 + 2) + 3) + 5 * 5, 5 * 3
    line, (steps, played, *_) = said(monkeypatch, cfg, settings(), PHYSICS)
    assert steps == (groups + final) * 16 * 5 * horizon
    points = cfg.evaluation.points * cfg.evaluation.num_envs * min(cfg.evaluation.point_steps or 500, 500)
    # the validation has the episodes of the rounds
    assert played == (groups + final) * points + (groups * cfg.evaluation.final_episodes + final * 256) * 500
    assert line.endswith("of training and evaluation (from the speed of the physics here, on idle cores)")
    # a run's own line is of its groups
    own = run_line(cfg, 7, None)
    assert own == f"time: {rounded(7 * 16 * 5 * horizon)} env-steps"
    assert run_line(cfg, 7, PHYSICS).startswith(f"{own}, ")


def test_physics_is_measured_on_the_small_simulation():
    steps: list[torch.Size] = []
    probe = SimpleNamespace(
        num_envs=4, num_dofs=2, max_episode_length=500, device="cpu", step=lambda command: steps.append(command.shape)
    )
    assert Physics.of(probe).speed > 0 and steps == [(4, 2)] * (1 + PHYSICS_STEPS)


def test_time_is_a_range_around_the_speed_of_the_physics(monkeypatch):
    cfg = resolve("Cartpole", ["num_envs_per_candidate=16", "learning_iterations=5", "device=cpu"]).config
    ranges: list[tuple[float, float]] = []
    monkeypatch.setattr(forecast.forecast, "span", lambda low, high: ranges.append((low, high)) or "")
    _, (steps, played, *_) = said(monkeypatch, cfg, settings(), PHYSICS)
    ((low, high),) = ranges
    assert steps / 1000.0 < low < high and high > (steps + played) / 1000.0


def test_time_left_is_that_of_later_rounds_and_the_final_evaluation_at_this_pace():
    cfg = resolve("Cartpole", ["num_envs_per_candidate=16", "seeds=3", "device=cpu"]).config
    groups, final = 3 * (2 * (8 + 2) + 3) / 2, 5 * 5 + 5 * 3  # of a round, of what comes after
    assert forecast.time_left(cfg, settings(), 1, 10.0, 60.0) == 10.0 + 60.0 * (1 + final / groups)
    assert forecast.time_left(cfg, settings(), 2, 10.0, 60.0) == pytest.approx(60.0 * final / groups)


def test_without_a_probe_on_the_cpu_only_the_steps_are_said():
    cfg = resolve("Cartpole", ["num_envs_per_candidate=16", "device=cpu"]).config
    assert forecast.time_line(cfg, settings(), None).endswith("env-steps")


def test_gpus_share_the_time():
    cfg = resolve("Cartpole", ["num_envs_per_candidate=16", "device=cpu"]).config.model_copy(update={"device": "cuda"})
    one, two = (forecast.time_line(cfg, settings(), None, devices) for devices in (1, 2))
    assert "at 300,000 to 4,000,000 env-steps/s" in one and one != two
