"""Which action functions are part of an exported policy: those that are linear in the action, possibly clipped."""

import pytest
import torch

from envcoder_bench.export.module import affine_command
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare_one

pytestmark = pytest.mark.slow
VARYING = {"dof_pos", "dof_vel", "progress_buf"}  # cart_pos and others are views of these
TEXT = """
ACTION_DIM = 2
def compute_torque(action, cart_pos, pole_angle, progress_buf, max_push_effort):
    force = {}
    return torch.stack((force, torch.zeros_like(force)), dim=-1)
"""


def fitted(force, **more):
    spec = resolve("Cartpole", ["device=cpu", "compile_shapers=false", *more.get("overrides", [])])
    env = build_env(
        spec, [prepare_one(spec, CandidateSource("mine", "mine.py", TEXT.format(force)), 0).shaping], [0], 8
    )
    env.reset()
    return affine_command(env, VARYING)


@pytest.mark.parametrize(
    "force, weight, bias, low, high",
    [
        ("max_push_effort * action[:, 0]", [400.0, 0.0], 0.0, -torch.inf, torch.inf),
        ("3.0 * action[:, 1] - 2.0 * action[:, 0] + 7.0", [-2.0, 3.0], 7.0, -torch.inf, torch.inf),
        ("torch.clamp(300.0 * action[:, 0], -20.0, 30.0)", [300.0, 0.0], 0.0, -20.0, 30.0),
        ("5.0 * action[:, 0] + 0.0 * cart_pos", [5.0, 0.0], 0.0, -torch.inf, torch.inf),
    ],
)
def test_linear_commands_are_fitted(force, weight, bias, low, high):
    found = fitted(force)
    assert found is not None
    wanted = (torch.tensor([weight, [0.0, 0.0]]), torch.tensor([bias, 0.0]))
    torch.testing.assert_close((found.weight, found.bias), wanted, rtol=1e-6, atol=1e-6)
    assert (found.low[0], found.high[0]) == pytest.approx((low, high))


@pytest.mark.parametrize(
    "force",
    [
        "torch.tanh(action[:, 0])",
        "9.0 * torch.sign(action[:, 0])",
        "action[:, 0] * action[:, 1]",
        "action[:, 0] + 0.01 * pole_angle",
        "action[:, 0] + torch.rand_like(cart_pos)",
        "torch.where(cart_pos > 1.5, 2.0 * action[:, 0], action[:, 0])",  # not in the states of a rollout
        "torch.where(progress_buf > 8, 2.0 * action[:, 0], action[:, 0])",
        "action[:, 0] / (action[:, 0] - 1.0)",  # fails
    ],
)
def test_nonlinear_commands_are_not_fitted(force):
    assert fitted(force) is None


def test_linearity_is_tested_within_the_action_limits():
    assert fitted("torch.where(action[:, 0] > 1.0, torch.zeros_like(cart_pos), action[:, 0])") is not None
    wide = ["task.env.clipActions=10"]
    assert fitted("torch.where(action[:, 0] > 1.0, torch.zeros_like(cart_pos), action[:, 0])", overrides=wide) is None
