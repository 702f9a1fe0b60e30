"""Domain randomization by IsaacGymEnvs' YAML files, in place of a task's own ``apply_randomizations``.

All numbers are functions of (seed, lane, step): groups with the same seed get the same randomization, whatever other
groups there are and however often their episodes end.
"""

import logging
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.sources.isaacgym_tasks.random_actors import RandomActors
from envcoder_bench.sources.isaacgym_tasks.random_params import (
    Distribution,
    Params,
    randomizes,
    read_params,
    standard_numbers,
)
from envcoder_bench.sources.isaacgym_tasks.scene import Scene

log = logging.getLogger(__name__)
_told: set[str] = set()  # descriptions that were logged
NEVER = -(1 << 61)  # the step of the last randomization before the first one


class Randomizer:
    """The randomization of a task's environments.

    At the reset of an environment whose last randomization is ``frequency`` control steps ago, its actors' properties
    are drawn. Every ``frequency`` simulation steps the gravity of each group and the noise of observations and actions
    are drawn. Schedules count simulation steps; they have ended where steps are those of evaluations.

    Args:
        params: which numbers are randomized, and how.
        gym, sim, scene: of the task.
        num_envs: number of environments.
        repeats: simulation steps in a control step.
        device: of actions and observations.

    Raises:
        ValueError: the task has no such actor or attribute.
    """

    def __init__(
        self, params: Params, gym: Any, sim: Any, scene: Scene, num_envs: int, repeats: int, device: torch.device
    ) -> None:
        self._params, self._repeats = params, repeats
        self._actors = RandomActors(params, gym, scene, [gym.get_env(sim, k) for k in range(num_envs)])
        self._engine = getattr(sim, "engine", None)
        if params.gravity is not None and self._engine is None:
            raise ValueError(
                f"{params.gravity.key_path}: NVIDIA's isaacgym has one gravity for all candidates: remove it"
            )
        gravity = gym.get_sim_params(sim).gravity
        self._gravity = np.array([gravity.x, gravity.y, gravity.z])
        self._seeds, self._lanes = torch.zeros(num_envs, dtype=torch.int64), torch.arange(num_envs)
        self._seeds_there, self._lanes_there = self._seeds.to(device), self._lanes.to(device)
        self._randomized = torch.full((num_envs,), NEVER)  # the step of each environment's last randomization
        self._refreshed = NEVER  # the step of the last refresh of gravity and noise

    def describe(self) -> str:
        """Return the names of all that is randomized."""
        parts = [name for name in ("observations", "actions", "gravity") if getattr(self._params, name) is not None]
        return ", ".join([*parts, *self._actors.distributions])

    def attach(self, seeds: Tensor, lanes: Tensor) -> None:
        """Receive the groups, while all properties have their original values."""
        self._seeds, self._lanes = seeds.cpu(), lanes.cpu()
        self._seeds_there, self._lanes_there = seeds, lanes
        self._actors.use_lanes(lanes)
        self.expire()

    def undo(self) -> None:
        """Set all properties to their original values."""
        unset = {key: torch.full_like(x, torch.nan) for key, x in self._actors.samples.items()}
        self._actors.restore(unset)

    def expire(self) -> None:
        """Randomize everything at the next reset, except what is drawn once."""
        self._randomized.fill_(NEVER)
        self._refreshed = NEVER

    def _frames(self, step: int) -> int:
        return step * self._repeats

    # actors

    def randomize(self, envs: Tensor, step: int) -> None:
        """Draw and set properties of actors, in those of the environments ``envs`` ``(n,)`` where they are due."""
        envs = envs.cpu()
        envs = envs[step - self._randomized[envs] >= self._params.frequency]
        if not len(envs):
            return
        once, others = [], []
        for key, distribution in self._actors.distributions.items():
            (once if distribution.setup_only else others).append(key)
        if once:
            missing = torch.isnan(self._actors.samples[once[0]][envs]).all(dim=1)
            self._draw(envs[missing], once, 0)
        self._draw(envs, others, step)
        self._randomized[envs] = step

    def _draw(self, envs: Tensor, keys: Sequence[str], step: int) -> None:
        if not len(envs) or not keys:
            return
        seeds, lanes, frames = self._seeds[envs], self._lanes[envs], self._frames(step)
        drawn: dict[str, Tensor] = {}
        for key in keys:
            distribution = self._actors.distributions[key]
            drawn[key] = torch.from_numpy(distribution.draw(seeds, lanes, step, frames, self._actors.columns(key)))
        self._actors.set_samples(envs, drawn)

    # gravity and noise

    def refresh(self, step: int) -> None:
        """Draw gravity and noise anew if the last time is long enough ago."""
        if self._frames(step - self._refreshed) >= self._params.frequency:
            self._refreshed = step
            self._set_gravity()

    def _set_gravity(self) -> None:
        """Set the gravity of each group, which depends on its seed and the step of the last refresh."""
        gravity, step = self._params.gravity, self._refreshed
        if gravity is None or self._engine is None:
            return
        seeds, group = torch.unique(self._seeds, return_inverse=True)
        rows = [
            gravity.draw(seed.view(1), torch.zeros(1, dtype=torch.int64), step, self._frames(step), 3) for seed in seeds
        ]
        self._engine.set_gravity(gravity.applied(self._gravity, np.concatenate(rows))[group.numpy()])

    def add_noise(self, which: str, x: Tensor, rows: slice, step: int) -> Tensor:
        """Return actions or observations ``(n, width)`` of the environments ``rows`` with their noise."""
        dist: Distribution | None = getattr(self._params, which)
        if dist is None:
            return x
        frames, normal = self._frames(self._refreshed), dist.distribution == "gaussian"
        noise = self._noise(dist, dist.bounds(frames), normal, dist.key, x, rows, step)
        # in IsaacGymEnvs the part that is constant between refreshes is normal in both distributions
        corr = self._noise(dist, dist.bounds(frames, dist.correlated), True, dist.key ^ 1, x, rows, self._refreshed)
        return (operator.add if dist.operation == "additive" else operator.mul)(x, corr + noise)

    def _noise(
        self, dist: Distribution, bounds: tuple[float, float], normal: bool, key: int, x: Tensor, rows: slice, step: int
    ) -> Tensor | float:
        first, second = bounds
        spread = second if dist.distribution == "gaussian" else second - first
        if spread == 0.0:
            return first
        return first + spread * standard_numbers(
            normal, key, self._seeds_there[rows], self._lanes_there[rows], step, x.shape[1]
        )

    # checkpoints

    def get_state(self) -> dict[str, Tensor]:
        """Return the state that ``set_state`` restores, as CPU tensors."""
        samples = {f"samples.{key}": x.clone() for key, x in self._actors.samples.items()}
        last = torch.tensor(self._refreshed)
        return {**samples, "randomized": self._randomized.clone(), "refreshed": last}

    def set_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what ``get_state`` returned, and set all properties."""
        self._actors.restore({key: state[f"samples.{key}"] for key in self._actors.samples})
        self._randomized.copy_(state["randomized"])
        self._refreshed = int(state["refreshed"])
        if self._refreshed != NEVER:
            self._set_gravity()


def make_randomizer(config: Mapping[str, Any], isaac: Any, gym: Any, scene: Scene, repeats: int) -> Randomizer | None:
    """Return the randomizer of a task; None if its config does not enable randomization.

    Raises:
        ValueError: the config lacks ``randomization_params``, or a value of them is wrong.
    """
    if not randomizes(config):
        return None
    content = config["task"].get("randomization_params")
    if content is None:
        raise ValueError("task.randomize is True, but the task's YAML has no task.randomization_params")
    if getattr(isaac, "actor_params_generator", None) is not None:
        raise ValueError("task.randomize is True, but samples of the task's actor_params_generator are not supported")
    params, device = read_params(content), torch.device(isaac.device)
    randomizer = Randomizer(params, gym, isaac.sim, scene, int(isaac.num_envs), repeats, device)
    if randomizer.describe() not in _told:  # a run constructs its task several times
        _told.add(randomizer.describe())
        log.info("domain randomization: %s", randomizer.describe())
    return randomizer
