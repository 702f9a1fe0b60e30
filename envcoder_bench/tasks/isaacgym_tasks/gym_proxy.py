"""A proxy of ``gym`` that merges candidates' commands into the task's own."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch
from torch import Tensor

from envcoder_bench.core.torch_settings import settings_kept


class GymProxy:
    """The ``gym`` of a task; calls are forwarded, some with changes.

    Attributes:
        commanded: ``(num_envs,)`` bool, environments whose drives follow ``command`` instead of the task.
        effort: ``(num_envs,)`` bool, which of these are commanded by efforts; the others by position targets.
        command: ``(num_envs, num_dofs)``.
        blown: ``(num_envs,)`` bool, environments whose physics failed since it was cleared.
        acquired: names of the methods that refresh the acquired tensors.
    """

    def __init__(self, gym: Any) -> None:
        self.__dict__.update(_gym=gym, _sim=None, _efforts=None, _targets=None)
        self.commanded: Tensor | None = None
        self.effort: Tensor | None = None
        self.command: Tensor | None = None
        self.blown: Tensor | None = None
        self.acquired: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("acquire_"):
            kind = name[len("acquire_") :]
            several = kind in ("jacobian_tensor", "mass_matrix_tensor")
            refresh = f"refresh_{kind}{'s' if several else ''}"
            if refresh not in self.acquired:
                self.acquired.append(refresh)
        return getattr(self._gym, name)

    def create_sim(self, *args: Any, **kwargs: Any) -> Any:
        self._sim = self._gym.create_sim(*args, **kwargs)
        return self._sim

    def set_dof_actuation_force_tensor(self, sim: Any, efforts: Tensor) -> Any:
        self._efforts = efforts
        return self._gym.set_dof_actuation_force_tensor(sim, self._merged(efforts, True))

    def set_dof_position_target_tensor(self, sim: Any, targets: Tensor) -> Any:
        self._targets = targets
        return self._gym.set_dof_position_target_tensor(sim, self._merged(targets, False))

    def simulate(self, sim: Any) -> Any:
        if self.command is not None:
            # efforts act in one simulate, and the task may set only targets
            zeros = torch.zeros_like(self.command)
            self._gym.set_dof_actuation_force_tensor(sim, self._merged(_or(self._efforts, zeros), True))
            if not bool(self.effort[self.commanded].all()):  # type: ignore[index]
                self._gym.set_dof_position_target_tensor(sim, self._merged(_or(self._targets, zeros), False))
        self._efforts = None
        made = self._gym.simulate(sim)
        blown = getattr(getattr(sim, "engine", None), "blown", None)
        if blown is not None and self.blown is not None:
            self.blown |= blown
        return made

    def _merged(self, given: Any, effort: bool) -> Any:
        if self.command is None or not isinstance(given, Tensor):
            return given
        assert self.commanded is not None and self.effort is not None
        rows = (self.commanded & (self.effort == effort)).unsqueeze(1)
        return torch.where(rows, self.command, given.reshape(self.command.shape)).contiguous()


def _or(given: Any, other: Tensor) -> Tensor:
    return given if isinstance(given, Tensor) else other


@contextlib.contextmanager
def proxied() -> Iterator[list[GymProxy]]:
    """Make ``acquire_gym`` return a proxy inside the block; yields a list, to which the proxy is added."""
    from isaacgym import gymapi  # type: ignore[import-not-found]

    made: list[GymProxy] = []
    acquire = gymapi.acquire_gym

    def acquire_gym(*args: Any) -> GymProxy:
        if not made:
            made.append(GymProxy(acquire(*args)))
        return made[0]

    gymapi.acquire_gym = acquire_gym  # type: ignore[assignment]
    try:
        with settings_kept():
            yield made
    finally:
        gymapi.acquire_gym = acquire
