"""What the measurement of isolation compares, with steps that are given."""

from types import SimpleNamespace

import pytest
import torch

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.tools.isolation import BESIDE, _compare_rollouts

NUM, STEPS = 4, 6


class Steps:
    """As much of a GroupedVecTask as the measurement uses. In ``step`` a ``field`` of one environment differs."""

    critic_dims = (2,)

    def __init__(self, groups, field=None, step=None):
        self.layout, self.obs_dims = GroupLayout(groups, NUM), [3] * groups
        self.actions = torch.zeros(groups * NUM, 2)
        self.field, self.at, self.taken = field, step, 0
        self.critic_obs = None

    def reset(self):
        return self._changed("obs", torch.zeros(len(self.actions), 3))

    def _changed(self, field, x):
        if (field, self.taken) == (self.field, self.at):
            x[(BESIDE if self.layout.num_groups > 1 else 0) * NUM + 1] = 1
        return x

    def step(self, actions):
        self.taken += 1
        ends = torch.zeros(len(actions), dtype=torch.bool)
        self.critic_obs = self._changed("critic_obs", torch.zeros(len(actions), 2))
        return SimpleNamespace(
            obs=self._changed("obs", torch.zeros(len(actions), 3)),
            reward=self._changed("reward", actions.new_zeros(len(actions))),
            terminated=self._changed("terminated", ends.clone()), done=ends | (self.taken == 3),
        )  # fmt: skip


@pytest.mark.parametrize("field", ["obs", "reward", "terminated", "critic_obs"])
@pytest.mark.parametrize("step", [1, 4])
def test_a_difference_in_anything_that_a_learner_sees_is_noticed(field, step):
    first, ended = _compare_rollouts(Steps(1), Steps(3, field, step), STEPS)
    assert (first, ended) == (step, 0 if step < 3 else NUM)


def test_equal_rollouts_have_none_and_the_first_observation_counts():
    assert _compare_rollouts(Steps(1), Steps(3), STEPS) == (None, NUM)
    assert _compare_rollouts(Steps(1), Steps(3, "obs", 0), STEPS) == (0, 0)
