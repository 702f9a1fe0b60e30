"""A policy with everything between the candidate's observation and the robot's drives, as one PyTorch module."""

import torch
from torch import Tensor, nn

from envcoder_bench.export.command import Affine
from envcoder_bench.trainers.ppo.policy import Clip

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
    """Observations ``(n, obs_dim)`` to actions ``(n, action_dim)`` and, where possible, commands ``(n, num_dofs)``.

    Args:
        policy: the trained network, see ``run.policies.Policy``.
        clip_observations, clip_actions: the task's limits.
        command: the action function, if it depends on the action alone; None: only the actions are returned.
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
