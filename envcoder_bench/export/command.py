"""What a candidate's action function computes, where that depends on the action alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.env.grouped_vec_task import GroupedVecTask

_STEPS = (1.0, 0.125, 2.0**-7)  # a large one loses the fewest digits, if nothing is clipped there
_SAMPLES = 8  # actions that are compared in each environment
_PRECISION = 1e-5  # of the largest command


class Affine(NamedTuple):
    """The function ``clamp(weight @ action + bias, low, high)``: ``weight`` is ``(num_dofs, action_dim)``."""

    weight: Tensor
    bias: Tensor
    low: Tensor
    high: Tensor


def affine_command(env: GroupedVecTask) -> Affine | None:
    """Fit the action function of a one-group environment; None if it depends on the state or is not of this form.

    The function is called on the environments' present states, which should differ. The fit is compared with it for
    random actions of any size up to the task's limit.
    """
    width, limit = env.action_dims[0], env.task.clip_actions
    origin = _commands(env, torch.zeros(width))
    if not _uniform(origin):
        return None
    bias = origin[0]
    for step in (step for step in _STEPS if step <= limit):
        columns = [_commands(env, step * torch.eye(width)[k]) for k in range(width)]
        if not all(map(_uniform, columns)):
            return None
        weight = torch.stack([(column[0] - bias) / step for column in columns], dim=1)
        found = _compared(env, weight, bias, min(limit, 1e3))
        if not all(env.alive):  # it fails at such actions
            return None
        if found is not None:
            return found
    return None


def _compared(env: GroupedVecTask, weight: Tensor, bias: Tensor, limit: float) -> Affine | None:
    """Return the fit with the clipping that was seen, or None if it differs from the function."""
    num, width = env.num_envs, env.action_dims[0]
    pairs = []
    for k in range(_SAMPLES):
        size = limit ** (k / (_SAMPLES - 1)) if limit > 1.0 else limit  # from 1 to the limit
        actions = (2.0 * noise.uniform(0, k, noise.CONTROL, num, width) - 1.0) * size
        pairs.append((actions @ weight.T + bias, _commands(env, actions)))
    fitted, actual = (torch.cat(each) for each in zip(*pairs))
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
