"""States of evaluation episodes, with which ``run.lint`` judges the rewards of other candidates."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.core.bounded import read_arrays

if TYPE_CHECKING:
    from envcoder_bench.env.grouped_vec_task import GroupedVecTask

# the trajectories of each policy
MOST_EPISODES, MOST_TIMES, LEAST_TIMES = 32, 24, 8
MOST_BYTES = 2 << 20


@dataclass(frozen=True)
class Trajectories:
    """Episodes of one policy in the task's unshaped evaluation, at some of their steps.

    Attributes:
        state: ``(times, episodes, ...)`` by key, ``actions`` and ``progress_buf`` included. The last time is the step
            that ended the episode early, which counts as a single step.
        weight: ``(times, episodes)``, the number of control steps that a state stands for; 0 after the end.
        fitness: ``(episodes,)``. The k-th episodes of all policies have the same random numbers.
    """

    state: dict[str, np.ndarray]
    weight: np.ndarray
    fitness: np.ndarray


class Recorder:
    """Records trajectories of some groups in a round of episodes, on a CUDA device without a sync.

    Args:
        policies: names of the policies to record, by group.
    """

    def __init__(self, env: GroupedVecTask, policies: Mapping[int, str]) -> None:
        self._env, self._policies = env, policies
        envs = min(MOST_EPISODES, env.layout.envs_per_group)
        self._views = {g: {key: x[:envs] for key, x in env.views[g].items()} for g in policies}
        sizes = [sum(x.numel() * x.element_size() for x in view.values()) for view in self._views.values()]
        fit = MOST_BYTES // max([1, *sizes])
        self._times = _times(env.full_episode, max(LEAST_TIMES, min(MOST_TIMES, fit)))
        self._parts: dict[int, list[dict[str, Tensor]]] = {g: [] for g in policies}
        self._counts: dict[int, list[Tensor]] = {g: [] for g in policies}
        self._last = {g: {key: x.clone() for key, x in view.items()} for g, view in self._views.items()}
        self._ended = {g: torch.zeros(envs, dtype=torch.bool, device=env.device) for g in policies}

    def step(self, t: int, active: Tensor, ended: Tensor) -> None:
        """Record the ``t``-th step: ``active`` before it, and which episodes it ended, both ``(num_envs,)``."""
        over, on_cpu, weight = active & ended, active.device.type == "cpu", self._times.get(t)
        if weight is None and on_cpu and not bool(over.any()):
            return
        self._env.task.refresh_state()
        for g, view in self._views.items():
            rows = self._env.layout.slice(g)
            envs = slice(rows.start, rows.start + len(self._ended[g]))
            for key, x in view.items():
                self._last[g][key] = torch.where(over[envs].view(-1, *[1] * (x.dim() - 1)), x, self._last[g][key])
            self._ended[g] |= over[envs]
            if weight is not None:
                self._parts[g].append({key: x.clone() for key, x in view.items()})
                self._counts[g].append(weight * (active & ~ended)[envs].float())

    def result(self, fitness: Tensor) -> dict[str, Trajectories]:
        """Return the trajectories by policy; ``fitness`` ``(num_groups, episodes)`` has the recorded round first."""
        recorded = {}
        for g, name in self._policies.items():
            parts = [*self._parts[g], self._last[g]]
            state = {key: torch.stack([part[key] for part in parts]).cpu().numpy() for key in self._last[g]}
            weight = torch.stack([*self._counts[g], self._ended[g].float()]).cpu().numpy()
            recorded[name] = Trajectories(state, weight, fitness[g, : weight.shape[1]].cpu().numpy())
        return recorded


def _times(steps: int, count: int) -> dict[int, float]:
    """Return steps, dense at the beginning because some episodes end soon, with the number each stands for."""
    even, early = np.linspace(0, steps - 1, count - count // 2), np.geomspace(1, steps, count // 2) - 1
    times = np.unique(np.concatenate([even, early]).round().astype(int))
    borders = np.concatenate([[-0.5], (times[1:] + times[:-1]) / 2, [steps - 0.5]])
    return dict(zip(times.tolist(), np.diff(borders).tolist()))


def pack(policies: Mapping[str, Trajectories]) -> bytes:
    """Return the content of a file ``.npz``."""
    arrays: dict[str, np.ndarray] = {}
    for name, played in policies.items():
        arrays.update({f"{name}/state/{key}": x for key, x in played.state.items()})
        arrays.update({f"{name}/weight": played.weight, f"{name}/fitness": played.fitness})
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # pyright: ignore[reportArgumentType]
    return content.getvalue()


def unpack(content: bytes) -> dict[str, Trajectories]:
    """Return what ``pack`` packed. Raises ValueError if it is something else."""
    try:
        by_name: dict[str, dict[str, np.ndarray]] = {}
        for path, array in read_arrays(content).items():
            name, _, key = path.partition("/")
            by_name.setdefault(name, {})[key] = array
        policies = {}
        for name, parts in by_name.items():
            state = {key.removeprefix("state/"): x for key, x in parts.items() if key.startswith("state/")}
            policies[name] = Trajectories(state, parts["weight"], parts["fitness"])
        return policies
    except (ValueError, KeyError) as error:
        raise ValueError(f"it has no trajectories: {error}") from error
