"""A task of terms in steps, as the environment takes them."""

import torch

from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import EnvGroups


class TermDriven:
    """A task whose steps and resets are those of its own terminations, as ``GroupedVecTask`` does with ``human``."""

    def __init__(
        self, address, size, groups=1, config=None, patches=(), limit=10**9, begin=True, device="cpu", seeds=(0,)
    ):
        spec = find_spec(address)
        n = size * groups
        self.task = spec.make({"name": spec.name, **(config or {})}, n, "mujoco_cpu", device)
        self.actions, self.limit, self.size = torch.zeros(n, self.task.num_dofs, device=device), limit, size
        self.attach(patches, seeds, begin)

    def attach(self, patches, seeds=(0,), begin=True):
        """Begin with other patches and seeds."""
        n, device = len(self.actions), self.actions.device
        nowhere = torch.zeros(n, dtype=torch.bool, device=device)
        lanes = torch.arange(self.size, device=device).repeat(n // self.size)
        seeds = torch.tensor(seeds, device=device).repeat_interleave(n // len(seeds))
        self.task.patch(patches)
        self.task.attach(EnvGroups(self.size, seeds, lanes, self.actions, nowhere, nowhere, nowhere, keys=()))
        self.steps = 0
        if begin:
            self.begin()

    def begin(self):
        """Begin the first episodes."""
        self._begin(torch.ones(len(self.actions), dtype=torch.bool, device=self.actions.device))
        self.task.world.episode_length_buf.zero_()  # the first episodes of a training have begun before

    def _begin(self, mask):
        self.task.step_count = self.steps
        if mask.any():
            self.task.prepare_reset(mask)
        self.task.settle()

    def step(self, action):
        """Take one action ``(size, width)`` in all groups; return the results of the step by name."""
        task = self.task
        self.actions.copy_(action.repeat(len(self.actions) // self.size, 1))
        task.step_count = self.steps
        task.step(torch.empty(0))
        self.steps += 1
        names = ("reward_buf", "reward_terms", "reset_buf", "score")
        results = {name: task.state[name].clone() for name in names}
        results["time_outs"] = task.timed_out.clone()
        ended = task.state["reset_buf"] | task.timed_out | (task.world.episode_length_buf >= self.limit)
        self._begin(ended)
        results.update({name: task.state[name].clone() for name in ("obs_buf", "critic_buf") if name in task.state})
        results["ended"] = ended
        return results

    def of_group(self, results, group):
        return {name: x[group * self.size : (group + 1) * self.size] for name, x in results.items()}


def actions(size, width, steps):
    generator = torch.Generator().manual_seed(3)
    return [0.7 * torch.randn(size, width, generator=generator) for _ in range(steps)]
