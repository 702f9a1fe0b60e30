"""A toy environment with groups of different widths, and a trainer on it.

A point in a plane of obs_dim dimensions is to be pushed to the origin.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from oracle import make_params
from torch import Tensor

from envcoder_bench.core import noise
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.base import EnvStep
from envcoder_bench.trainers.base import Stats, train_iteration
from envcoder_bench.trainers.ppo.trainer import GroupedPPO

EPISODE_LENGTH, BOUND = 10, 4.0
OBS_DIMS, ACTION_DIMS, SEEDS = [5, 9, 3, 4, 7, 2, 6, 8], [2, 5, 1, 2, 3, 1, 4, 6], [7, 8, 9, 7, 7, 8, 1, 2]


class LinearEnv:
    """x' = x + a B / 2 with reward 1 - mean(x^2); an episode ends beyond |x| = 4, or by time-out after 10 steps.

    Every group is computed by itself, on tensors of its own shape, so that it cannot feel its neighbours.

    Args:
        fails_at: for some groups, the step at which they fail: from then on they yield NaN.
        critic_dims: for each group, how many columns of (progress, x, x^2) its critic sees; 0: none of its own.
    """

    critic_dims: Sequence[int] = ()

    def __init__(
        self,
        obs_dims: Sequence[int],
        action_dims: Sequence[int],
        seeds: Sequence[int],
        envs_per_group: int,
        fails_at: Mapping[int, int] = {},
        device: str = "cpu",
        critic_dims: Sequence[int] = (),
    ) -> None:
        self.critic_dims = critic_dims
        self.layout = GroupLayout(len(obs_dims), envs_per_group)
        self.num_envs = self.layout.num_envs
        self.obs_dims, self.action_dims, self.group_seeds = list(obs_dims), list(action_dims), list(seeds)
        self.fails_at, self.device = fails_at, device
        self.alive = [True] * len(self.obs_dims)
        self.step_count = 0
        self.effect = [torch.ones(a, d, device=device).triu() for a, d in zip(action_dims, obs_dims)]
        self.x = [self._start(g) for g in range(len(self.obs_dims))]
        self.progress = [torch.zeros(envs_per_group, dtype=torch.int64, device=device) for _ in self.x]
        self.actions = torch.zeros(0)

    def _start(self, g: int) -> Tensor:
        n, d = self.layout.envs_per_group, self.obs_dims[g]
        return 4 * noise.uniform(self.group_seeds[g], self.step_count, 1, n, d, self.device) - 2

    def _obs(self) -> Tensor:
        width = max(self.obs_dims)
        obs = [x if alive else x * float("nan") for x, alive in zip(self.x, self.alive)]
        return torch.cat([torch.nn.functional.pad(x, (0, width - x.shape[1])) for x in obs])

    @property
    def critic_obs(self) -> Tensor | None:
        if not any(self.critic_dims):
            return None
        seen = []
        for g, (x, dim) in enumerate(zip(self.x, self.critic_dims)):
            own = torch.cat([self.progress[g].unsqueeze(1) - 3.0, x, x.square()], dim=1)[:, :dim]
            seen.append(torch.nn.functional.pad(own, (0, max(self.critic_dims) - own.shape[1])))
        return torch.cat(seen)

    def reset(self) -> Tensor:
        self.x = [self._start(g) for g in range(len(self.x))]
        return self._obs()

    def step(self, actions: Tensor, final_obs: bool = False) -> EnvStep:
        self.actions = actions
        rewards: list[Tensor] = []
        terminated: list[Tensor] = []
        truncated: list[Tensor] = []
        self.step_count += 1
        for g, action in enumerate(self.layout.split(actions)):
            self.alive[g] = self.alive[g] and self.step_count != self.fails_at.get(g)
            x = self.x[g] + 0.5 * action[:, : self.action_dims[g]].contiguous() @ self.effect[g]
            self.progress[g] += 1
            terminal = x.abs().amax(dim=1) > BOUND
            time_out = (self.progress[g] >= EPISODE_LENGTH) & ~terminal
            done = terminal | time_out
            rewards.append((1 - x.square().mean(dim=1)) * (1.0 if self.alive[g] else float("nan")))
            terminated.append(terminal)
            truncated.append(time_out)
            self.x[g] = torch.where(done.unsqueeze(1), self._start(g), x)
            self.progress[g].masked_fill_(done, 0)
        return EnvStep(self._obs(), torch.cat(rewards), torch.cat(terminated), torch.cat(truncated))

    def get_state(self) -> dict[str, Any]:
        clone = [t.clone() for t in self.x], [t.clone() for t in self.progress]
        return {"x": clone[0], "progress": clone[1], "step_count": self.step_count, "alive": list(self.alive)}

    def set_state(self, state: Any) -> None:
        self.x, self.progress = ([t.clone() for t in state[key]] for key in ("x", "progress"))
        self.step_count, self.alive = state["step_count"], list(state["alive"])


def make_env(groups: Sequence[int], envs_per_group: int = 6, **kwargs: Any) -> LinearEnv:
    """Return an environment of some of the groups of ``OBS_DIMS``, ``ACTION_DIMS`` and ``SEEDS``."""
    picked = [[values[g] for g in groups] for values in (OBS_DIMS, ACTION_DIMS, SEEDS)]
    return kwargs.pop("env_class", LinearEnv)(*picked, envs_per_group, **kwargs)


class Run:
    """A trainer on its environment; keyword arguments as of ``make_params``."""

    def __init__(self, env: LinearEnv, device: str = "cpu", **overrides: Any) -> None:
        self.env, self.obs, self.params = env, env.reset(), make_params(**overrides)
        self.stats: Stats = {}
        critics: dict[str, Any] = {"critic_dims": env.critic_dims} if any(env.critic_dims) else {}
        args = (env.layout, env.obs_dims, env.action_dims, env.group_seeds, self.params, torch.device(device))
        self.trainer = GroupedPPO(*args, **critics)

    def train(self, epochs: int) -> "Run":
        """Train until so many iterations are done."""
        while self.trainer.epoch < epochs:
            self.obs, self.stats = train_iteration(self.trainer, self.env, self.obs)
        return self

    def weights(self, group: int) -> dict[str, Tensor]:
        """Return the parameters and statistics of a group's policy, and those of a critic of its own."""
        exported = self.trainer.export(group)
        return {**exported["model"], **exported.get("assymetric_vf_nets", {})}

    def get_state(self) -> dict[str, Any]:
        return {"trainer": self.trainer.get_state(), "env": self.env.get_state(), "obs": self.obs.cpu()}

    def restore(self, state: dict[str, Any]) -> None:
        self.trainer.set_state(state["trainer"])
        self.env.set_state(state["env"])
        self.obs = state["obs"].to(self.env.device)


def assert_bitwise(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key
