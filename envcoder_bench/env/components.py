"""Statistics of rewards and their components in training, per group: means, minima and maxima."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.shaping.outputs import TOTAL

Spread = tuple[float, float, float]  # mean, min, max

_MEANS, _SPREADS = 0, 1  # two time windows: since the last call of means, and of spreads


class Components:
    """Accumulates rewards and their components on the device.

    Args:
        names: for each group, the names of its components.
        alive: live, whether a reward is computed for each group.

    Attributes:
        counts: ``(num_groups, 1 + most components, 3, envs_per_group)``: for the reward and each component, every
            environment's sum, minimum and maximum. The calls of reward functions fill it.
    """

    def __init__(
        self, layout: GroupLayout, names: Sequence[tuple[str, ...]], alive: Sequence[bool], device: torch.device
    ) -> None:
        self._names, self._alive = list(names), alive
        groups, rows = layout.num_groups, 1 + max(len(components) for components in names)
        self.counts = torch.zeros(groups, rows, 3, layout.envs_per_group, device=device)
        self.clear()  # entries beyond a group's components stay as they are now
        self._steps = [0] * groups  # number of steps in the sums of counts
        # means over the environments, summed over the steps of each window, and the number of its steps
        self._sums = torch.zeros(2, groups, rows, dtype=torch.float64)
        self._sum_steps = torch.zeros(2, groups, dtype=torch.int64)

    def clear(self) -> None:
        """Reset the counts on the device."""
        self.counts[:, :, 0] = 0.0
        self._clear_extremes()

    def _clear_extremes(self) -> None:
        self.counts[:, :, 1] = float("inf")
        self.counts[:, :, 2] = -float("inf")

    def names(self, group: int) -> tuple[str, ...]:
        """Return the names of a group's components, in the order of its counts."""
        return self._names[group]

    def rows(self, group: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the counts of a group's reward, and of its components by name, each ``(3, envs_per_group)``."""
        total, *components = self.counts[group]
        return total, dict(zip(self._names[group], components))

    def count_step(self) -> None:
        """Count a step, in which a reward was computed for each group that is alive."""
        self._steps = [steps + counts for steps, counts in zip(self._steps, self._alive)]

    def means(self) -> list[dict[str, float]]:
        """Return each group's means of its components per environment and step since the last call (one device sync).

        The dict of a group is empty if it is dead or no reward was computed since the last call.
        """
        taken = self._take(_MEANS)
        return [dict(zip(names, means[1:])) for names, means in zip(self._names, taken)]

    def spreads(self) -> list[dict[str, Spread]]:
        """Return each group's mean, min and max of TOTAL and its components, as ``means`` (two device syncs).

        NaN of a component affects only its mean.
        """
        extremes = torch.stack([self.counts[:, :, 1].amin(dim=2), self.counts[:, :, 2].amax(dim=2)])
        lows, highs = extremes.masked_fill_(extremes[0] > extremes[1], float("nan")).tolist()  # only NaN
        self._clear_extremes()
        spreads: list[dict[str, Spread]] = []
        for group, means in enumerate(self._take(_SPREADS)):
            three = list(zip(means, lows[group], highs[group]))
            spreads.append({**dict(zip(self._names[group], three[1:])), **dict(zip([TOTAL], three))})
        return spreads

    def _take(self, window: int) -> list[list[float]]:
        """Return each group's means of reward and components in a window, and reset it; empty without any."""
        self._drain()
        means: list[list[float]] = []
        for sums, steps, is_alive in zip(self._sums[window].tolist(), self._sum_steps[window].tolist(), self._alive):
            means.append([total / steps for total in sums] if is_alive and steps else [])
        self._sums[window] = 0.0
        self._sum_steps[window] = 0
        return means

    def _drain(self) -> None:
        """Add the device's sums to both windows; one device sync."""
        if not any(self._steps):
            return
        sums = self.counts[:, :, 0]
        if sums.is_cuda:
            means = sums.mean(dim=2).cpu()
        else:  # group by group, because the vectorization of a reduction may depend on the size of the whole tensor
            means = torch.zeros(sums.shape[:2])
            for group, names in enumerate(self._names):
                used = slice(1 + len(names))
                means[group, used] = sums[group, used].mean(dim=1)
        self._sums += means
        self._sum_steps += torch.tensor(self._steps)
        self._steps = [0] * len(self._names)
        sums.zero_()

    def get_state(self) -> dict[str, Any]:
        """Return the state that ``set_state`` restores."""
        tensors = {"counts": self.counts, "sums": self._sums, "sum_steps": self._sum_steps}
        return {**{name: x.cpu().clone() for name, x in tensors.items()}, "steps": list(self._steps)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore what ``get_state`` returned."""
        for tensor, name in ((self.counts, "counts"), (self._sums, "sums"), (self._sum_steps, "sum_steps")):
            tensor.copy_(state[name])
        self._steps = list(state["steps"])

    def split_state(self, state: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a state for each group, without the entries beyond its components."""
        parts = []
        for group, names in enumerate(self._names):
            only, rows = slice(group, group + 1), slice(1 + len(names))
            tensors = {
                "counts": state["counts"][only, rows],
                "sums": state["sums"][:, only, rows],
                "sum_steps": state["sum_steps"][:, only],
            }
            parts.append({**{key: x.clone() for key, x in tensors.items()}, "steps": state["steps"][only]})
        return parts

    def join_states(self, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Join the states of the groups, in their order; the reverse of ``split_state``."""
        counts, sums = torch.zeros(self.counts.shape), torch.zeros(self._sums.shape, dtype=self._sums.dtype)
        counts[:, :, 1], counts[:, :, 2] = float("inf"), -float("inf")
        for group, (names, part) in enumerate(zip(self._names, parts)):
            only, rows = slice(group, group + 1), slice(1 + len(names))
            counts[only, rows], sums[:, only, rows] = part["counts"], part["sums"]
        sum_steps = torch.cat([part["sum_steps"] for part in parts], dim=1)
        return {"counts": counts, "sums": sums, "sum_steps": sum_steps, "steps": [part["steps"][0] for part in parts]}
