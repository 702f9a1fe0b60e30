"""A policy with everything between the candidate's observation and the robot's drives, as one PyTorch module.

The module contains the action function if that depends only on the action. This file fits it.
"""

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from envcoder_bench.core import noise
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.trainers.ppo.policy import Clip

_STEPS = (1.0, 0.125, 2.0**-7)  # a large step loses the fewest digits, unless something is clipped
_SAMPLES = 16  # actions to compare in each environment
_SMALLEST = 1e-4  # size of the smallest compared actions, which show jumps at 0
_PRECISION = 1e-5  # tolerance, relative to the largest command


class Affine(NamedTuple):
    """The function ``clamp(weight @ action + bias, low, high)``: ``weight`` is ``(num_dofs, action_dim)``."""

    weight: Tensor
    bias: Tensor
    low: Tensor
    high: Tensor


def affine_command(env: GroupedVecTask, varying: Collection[str]) -> Affine | None:
    """Fit the action function of a one-group environment; None if it depends on the state or does not have this form.

    The fit is compared with the function for random actions of any size up to the task's limit, in random states. These
    overwrite the states of the environment, which cannot be used afterwards.

    Args:
        varying: keys of the state that differ among environments or change with time.
    """
    _scatter(env, varying)
    width, limit = env.action_dims[0], env.task.clip_actions
    origin = _commands(env, torch.zeros(width))
    if not _uniform(origin):
        return None
    bias, fit = origin[0], None
    for step in (step for step in _STEPS if step <= limit):
        columns = [_commands(env, step * torch.eye(width)[k]) for k in range(width)]
        if not all(map(_uniform, columns)):
            return None
        weight = torch.stack([(column[0] - bias) / step for column in columns], dim=1)
        fit = fit or _check_fit(env, weight, bias, min(limit, 1e3))
    return fit if all(env.alive) else None  # a failed function returns zeros


def _scatter(env: GroupedVecTask, keys: Collection[str]) -> None:
    """Write random numbers to these keys of the state."""
    for number, key in enumerate(sorted(keys)):
        values = noise.normal(1, number, Purpose.COMMAND, env.num_envs, env.state[key][0].numel())
        values = values.view_as(env.state[key])
        env.state[key].copy_(values if values.dtype == env.state[key].dtype else (values.abs() * 20.0).round())


def _check_fit(env: GroupedVecTask, weight: Tensor, bias: Tensor, limit: float) -> Affine | None:
    """Return the fit with the function's clipping, or None if it differs from the function."""
    num, width = env.num_envs, env.action_dims[0]
    pairs = []
    for k in range(_SAMPLES):
        size = _SMALLEST * (limit / _SMALLEST) ** (k / (_SAMPLES - 1))
        actions = (2.0 * noise.uniform(0, k, Purpose.COMMAND, num, width) - 1.0) * size
        pairs.append((actions @ weight.T + bias, _commands(env, actions)))
    fitted, actual = (torch.cat(commands) for commands in zip(*pairs))
    tolerance = _PRECISION * max(1.0, float(actual.abs().max()))
    endless = torch.full_like(bias, torch.inf)
    low = torch.where((fitted < actual - tolerance).any(dim=0), actual.amin(dim=0), -endless)
    high = torch.where((fitted > actual + tolerance).any(dim=0), actual.amax(dim=0), endless)
    close = (fitted.clamp(low, high) - actual).abs() <= tolerance
    return Affine(weight, bias, low, high) if bool(close.all()) else None


def _commands(env: GroupedVecTask, actions: Tensor) -> Tensor:
    """Call the action function with ``(num_envs, width)`` or ``(width,)`` actions: ``(num_envs, num_dofs)``."""
    env.actions.copy_(actions.expand_as(env.actions))
    return env.dispatch.command(env.actions, env.step_count).cpu().clone()


def _uniform(commands: Tensor) -> bool:
    return bool((commands == commands[0]).all())


OBS, ACTIONS, COMMAND = "obs", "actions", "command"  # names of inputs and outputs


class Command(nn.Module):
    """Commands of the drives: ``clamp(actions @ weight.T + bias, low, high)``."""

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.linear = nn.Linear(affine.weight.shape[1], affine.weight.shape[0])
        self.linear.load_state_dict({"weight": affine.weight, "bias": affine.bias})
        self.register_buffer("low", affine.low)
        self.register_buffer("high", affine.high)
        self.low: Tensor
        self.high: Tensor

    def forward(self, actions: Tensor) -> Tensor:
        return torch.clamp(self.linear(actions), self.low, self.high)


class ExportedPolicy(nn.Module):
    """Maps observations ``(n, obs_dim)`` to actions ``(n, action_dim)`` and, if possible, commands ``(n, num_dofs)``.

    Args:
        policy: the trained network, see ``run.policies.Policy``.
        clip_observations, clip_actions: the task's limits.
        command: the action function, if it depends only on the action; None: the module returns only actions.
    """

    def __init__(
        self, policy: nn.Module, clip_observations: float, clip_actions: float, command: Affine | None = None
    ) -> None:
        super().__init__()
        flat = list(policy.children()) if isinstance(policy, nn.Sequential) else [policy]
        self.policy = nn.Sequential(Clip(clip_observations), *flat, Clip(clip_actions))
        self.command = None if command is None else Command(command)
        self.requires_grad_(False).eval()

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [ACTIONS] if self.command is None else [ACTIONS, COMMAND]

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        actions = self.policy(obs)
        return (actions,) if self.command is None else (actions, self.command(actions))
