"""Running sums of the reward's components, group by group."""
from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch
from torch import Tensor

from envcoder_bench.groups import GroupLayout


class Components:
    """Adds components up on the device, and gives their means now and then.

    Args:
        names: for each group, the names of its components.

    Attributes:
        sums: ``(num_groups, most components, envs_per_group)``, filled by the reward functions' calls.
    """

    def __init__(self, layout: GroupLayout, names: Sequence[Tuple[str, ...]], device: torch.device) -> None:
        self._names = list(names)
        most = max(len(own) for own in names)
        self.sums = torch.zeros(layout.num_groups, most, layout.envs_per_group, device=device)
        self._steps = [0] * layout.num_groups

    def names(self, group: int) -> Tuple[str, ...]:
        """The names of one group's components, in the order of its sums."""
        return self._names[group]

    def rows(self, group: int) -> Dict[str, Tensor]:
        """The sums of one group by name, each ``(envs_per_group,)``."""
        return dict(zip(self._names[group], self.sums[group]))

    def count_step(self, alive: Sequence[bool]) -> None:
        """Count one reward computed in each group that is alive."""
        self._steps = [steps + own for steps, own in zip(self._steps, alive)]

    def means(self, alive: Sequence[bool]) -> List[Dict[str, float]]:
        """For each group, the mean of each component per environment and step since the last call (one device sync).

        A group that is dead, or had no reward computed since, gives an empty dict.
        """
        # group by group on the CPU: the way a reduction is vectorised may depend on the whole tensor's size
        batched = self.sums.mean(dim=2).tolist() if self.sums.is_cuda else None
        means: List[Dict[str, float]] = []
        for group, names in enumerate(self._names):
            steps = self._steps[group]
            if not alive[group] or steps == 0:
                means.append({})
                continue
            sums = self.sums[group, : len(names)].mean(dim=1).tolist() if batched is None else batched[group]
            means.append({name: total / steps for name, total in zip(names, sums)})
        self.sums.zero_()
        self._steps = [0] * len(self._names)
        return means

    def get_state(self) -> Dict[str, Any]:
        """What a later ``set_state`` needs to go on as if uninterrupted."""
        return {"sums": self.sums.cpu().clone(), "steps": list(self._steps)}

    def set_state(self, state: Dict[str, Any]) -> None:
        """Restore what ``get_state`` returned."""
        self.sums.copy_(state["sums"])
        self._steps = list(state["steps"])
