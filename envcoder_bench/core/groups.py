"""The layout of environments in groups, one per candidate and seed; the only code that slices tensors by group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class GroupLayout:
    """Contiguous groups of equal size n: group g owns environments g*n to (g+1)*n - 1.

    A group is one (candidate, seed) pair. Because all groups have equal size, every ``(num_envs, ...)`` tensor is also
    a ``(num_groups, envs_per_group, ...)`` view; the index within the group is the environment's *lane*.
    """

    num_groups: int
    envs_per_group: int

    def __post_init__(self) -> None:
        if self.num_groups < 1 or self.envs_per_group < 1:
            raise ValueError(f"a layout needs at least one group of one environment, got {self}")

    @property
    def num_envs(self) -> int:
        return self.num_groups * self.envs_per_group

    def slice(self, group: int) -> slice:
        """Environments of one group."""
        if not 0 <= group < self.num_groups:
            raise IndexError(f"group {group} of {self.num_groups}")
        return slice(group * self.envs_per_group, (group + 1) * self.envs_per_group)

    def split(self, x: Tensor) -> Tensor:
        """View ``(num_envs, ...)`` as ``(num_groups, envs_per_group, ...)``."""
        return x.view(self.num_groups, self.envs_per_group, *x.shape[1:])

    def merge(self, x: Tensor) -> Tensor:
        """Reshape ``(num_groups, envs_per_group, ...)`` to ``(num_envs, ...)``."""
        return x.reshape(self.num_envs, *x.shape[2:])

    def per_env(self, x: Tensor) -> Tensor:
        """Repeat a per-group ``(num_groups, ...)`` value for each of its environments: ``(num_envs, ...)``."""
        return x.repeat_interleave(self.envs_per_group, dim=0)

    def views(self, state: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """For each group, a dict of its slices (views, no copies) of ``(num_envs, ...)`` tensors."""
        return [{key: x[self.slice(g)] for key, x in state.items()} for g in range(self.num_groups)]

    def split_state(self, state: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Copy ``(num_envs, ...)`` tensors group by group.

        Raises:
            ValueError: a tensor does not have a row for each environment.
        """
        for key, x in state.items():
            if x.dim() == 0 or x.shape[0] != self.num_envs:
                raise ValueError(
                    f"the state's {key} {tuple(x.shape)} has no row for each of {self.num_envs} environments"
                )
        return [{key: x[self.slice(g)].clone() for key, x in state.items()} for g in range(self.num_groups)]


def join_states(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Concatenate tensors by name, the reverse of ``GroupLayout.split_state``."""
    return {key: torch.cat([part[key] for part in parts]) for key in parts[0]}


def common(parts: Sequence[Mapping[str, Any]], key: str) -> Any:
    """Return a value that all groups share. Raises ValueError if it differs."""
    value = parts[0][key]
    if not all(bool(torch.as_tensor(value == part[key]).all()) for part in parts):
        raise ValueError(f"groups with different {key} cannot train together: they are not at the same iteration")
    return value
