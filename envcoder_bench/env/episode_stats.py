"""The end of a control step: which episodes end, and statistics of episodes per group.

They are accumulated on the device, by operators of torch or by one Triton kernel, and read once per iteration.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout, join_states
from envcoder_bench.core.triton_import import jit, tl, triton, usable_on

StepEnd = tuple[Tensor, Tensor, Tensor, Tensor]  # (num_envs,): reward; bool: terminated, truncated, done


class EpisodeStats:
    """Shaped return, number of finished episodes, and physics errors of each group.

    Attributes, each ``(num_groups,)``:
        last_return: mean return of the episodes that ended before the last ``shaped_return``.
        contact_overflows: number of control steps and environments in which contacts exceeded the buffers.
    """

    def __init__(self, layout: GroupLayout, device: torch.device) -> None:
        self._layout, self._kernels = layout, usable_on(device, torch.float32)
        self._return = torch.zeros(layout.num_envs, device=device)  # returns of the current episodes
        # each environment's returns and number of finished episodes, and its number of resets of unstable physics, not
        # yet added to the group's sums
        self._recent = torch.zeros(3, layout.num_envs, device=device)
        self._sums = torch.zeros(2, layout.num_groups, device=device)  # returns and number of finished episodes
        self.last_return = torch.full((layout.num_groups,), float("nan"), device=device)
        self._counted = torch.zeros(layout.num_groups, device=device, dtype=torch.int64)  # episodes in earlier sums
        self._unstable_resets, self.contact_overflows = (torch.zeros_like(self._counted) for _ in range(2))

    def end_step(
        self, reward: Tensor, terminal: Tensor, unstable: Tensor, progress: Tensor, timed_out: Tensor | None, last: int
    ) -> StepEnd:
        """Return which episodes end, and count the step.

        Args:
            reward: ``(num_envs,)``, counted as 0 where ``unstable``, whose state was replaced by the default one.
            terminal, unstable, timed_out: ``(num_envs,)`` bool, reasons to end an episode.
            progress: ``(num_envs,)`` int64; episodes end at ``last``.
        """
        if self._kernels:
            sums = self._return, self._recent
            return _end_step_in_kernel(reward, terminal, unstable, progress, timed_out, last, *sums)
        reward = reward * ~unstable
        terminated = terminal | unstable
        late = progress >= last
        truncated = (late if timed_out is None else late | timed_out) & ~terminated
        done = terminated | truncated
        self.add(reward, done, unstable)
        return reward, terminated, truncated, done

    def add(self, reward: Tensor, done: Tensor, unstable: Tensor) -> None:
        """Count a step: ``(num_envs,)`` reward, done and unstable physics."""
        self._return += reward
        returned, count, blown_up = self._recent
        returned += torch.where(done, self._return, 0.0)
        count += done
        blown_up += unstable
        self._return.masked_fill_(done, 0.0)

    def _add_up(self) -> None:
        """Add the environments' counts to the groups' sums."""
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
        by_group = {name: x for name, x in state.items() if name not in ("_return", "_sums")}
        per_group = groups.split_state({**by_group, "_sums": state["_sums"].t()})
        return [{**a, **b} for a, b in zip(per_group, self._layout.split_state({"_return": state["_return"]}))]

    @staticmethod
    def join_states(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the state of an environment of these groups."""
        state = join_states(parts)
        return {**state, "_sums": state["_sums"].t()}


# the end of a step as one kernel


@jit
def _end_step(
    reward, terminal, unstable, progress, timed_out, counted, terminated, truncated, done, returns, recent, num_envs,
    last, CUTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < num_envs
    blown_up = tl.load(unstable + i, mask=mask, other=0) != 0
    gained = tl.where(blown_up, 0.0, tl.load(reward + i, mask=mask, other=0.0))
    # which episodes end
    ends = (tl.load(terminal + i, mask=mask, other=0) != 0) | blown_up
    late = tl.load(progress + i, mask=mask, other=0) >= last
    if CUTS:
        late = late | (tl.load(timed_out + i, mask=mask, other=0) != 0)
    late = late & (ends == 0)
    over = ends | late
    total = tl.load(returns + i, mask=mask, other=0.0) + gained
    # count the step
    tl.store(counted + i, gained, mask=mask)
    tl.store(terminated + i, ends, mask=mask)
    tl.store(truncated + i, late, mask=mask)
    tl.store(done + i, over, mask=mask)
    tl.store(returns + i, tl.where(over, 0.0, total), mask=mask)
    tl.store(recent + i, tl.load(recent + i, mask=mask) + tl.where(over, total, 0.0), mask=mask)
    tl.store(recent + num_envs + i, tl.load(recent + num_envs + i, mask=mask) + over.to(tl.float32), mask=mask)
    recent += 2 * num_envs
    tl.store(recent + i, tl.load(recent + i, mask=mask) + blown_up.to(tl.float32), mask=mask)


def _end_step_in_kernel(
    reward: Tensor, terminal: Tensor, unstable: Tensor, progress: Tensor, timed_out: Tensor | None, last: int,
    returns: Tensor, recent: Tensor,
) -> StepEnd:  # fmt: skip
    reward, progress = reward.contiguous(), progress.contiguous()
    counted = torch.empty_like(reward)
    ended = torch.empty(3, *reward.shape, dtype=torch.bool, device=reward.device)
    flags = (x.to(torch.bool).contiguous() for x in (terminal, unstable, terminal if timed_out is None else timed_out))
    terminal, unstable, cut, *out = (x.view(torch.uint8) for x in (*flags, *ended))
    _end_step[(triton.cdiv(len(reward), 256),)](
        reward, terminal, unstable, progress, cut, counted, *out, returns, recent, len(reward), last,
        CUTS=timed_out is not None, BLOCK=256, num_warps=4,
    )  # fmt: skip
    terminated, truncated, done = ended
    return counted, terminated, truncated, done
