"""Episode statistics per group, accumulated on the device and read once per iteration."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout, join_states


class EpisodeStats:
    """Shaped return, number of finished episodes, and physics errors of each group.

    Attributes, each ``(num_groups,)``:
        last_return: mean return of the episodes that ended before the last ``shaped_return``.
        contact_overflows: number of control steps and environments in which contacts exceeded the buffers.
    """

    def __init__(self, layout: GroupLayout, device: torch.device) -> None:
        self._layout = layout
        self._return = torch.zeros(layout.num_envs, device=device)  # of the current episodes
        # sums of each environment, until they are added to those of its group: returns of finished episodes, their
        # number, and that of resets of unstable physics
        self._recent = torch.zeros(3, layout.num_envs, device=device)
        self._sums = torch.zeros(2, layout.num_groups, device=device)  # of finished episodes: return, count
        self.last_return = torch.full((layout.num_groups,), float("nan"), device=device)
        self._counted = torch.zeros(layout.num_groups, device=device, dtype=torch.int64)  # in earlier sums
        self._unstable_resets, self.contact_overflows = (torch.zeros_like(self._counted) for _ in range(2))

    def add(self, reward: Tensor, done: Tensor, unstable: Tensor) -> None:
        """Count a step: ``(num_envs,)`` reward, done and unstable physics."""
        self._return += reward
        returned, count, blown_up = self._recent
        returned += torch.where(done, self._return, 0.0)
        count += done
        blown_up += unstable
        self._return.masked_fill_(done, 0.0)

    @property
    def per_env(self) -> tuple[Tensor, Tensor]:
        """What ``add`` changes: returns of the current episodes ``(num_envs,)``, and sums ``(3, num_envs)``."""
        return self._return, self._recent

    def _add_up(self) -> None:
        """Add what environments counted to the groups' sums."""
        recent = self._recent.view(3, self._layout.num_groups, -1).sum(dim=2)
        self._sums += recent[:2]
        self._unstable_resets += recent[2].to(torch.int64)
        self._recent.zero_()

    @property
    def unstable_resets(self) -> Tensor:
        """Number of resets of environments whose physics became unstable, ``(num_groups,)``."""
        self._add_up()
        return self._unstable_resets

    @property
    def training_episodes(self) -> Tensor:
        """Number of episodes that have ended, ``(num_groups,)``."""
        self._add_up()
        return self._counted + self._sums[1].long()

    def shaped_return(self) -> Tensor:
        """Return the mean undiscounted return of the episodes that ended since the last call, ``(num_groups,)``.

        If none ended, the previous value; NaN before the first.
        """
        self._add_up()
        count = self._sums[1]
        self.last_return = torch.where(count > 0, self._sums[0] / count.clamp(min=1.0), self.last_return)
        self._counted += count.long()
        self._sums.zero_()
        return self.last_return

    def get_state(self) -> dict[str, Tensor]:
        self._add_up()
        names = ("_return", "_sums", "_counted", "last_return", "unstable_resets", "contact_overflows")
        return {name: getattr(self, name).cpu().clone() for name in names}

    def set_state(self, state: dict[str, Tensor]) -> None:
        self._recent.zero_()
        for name, value in state.items():
            getattr(self, name).copy_(value)

    def split_state(self, state: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return a state for each group."""
        groups = GroupLayout(self._layout.num_groups, 1)
        own = {name: x for name, x in state.items() if name not in ("_return", "_sums")}
        per_group = groups.split_state({**own, "_sums": state["_sums"].t()})
        return [{**a, **b} for a, b in zip(per_group, self._layout.split_state({"_return": state["_return"]}))]

    @staticmethod
    def join_states(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the state of an environment of these groups."""
        joined = join_states(parts)
        return {**joined, "_sums": joined["_sums"].t()}
