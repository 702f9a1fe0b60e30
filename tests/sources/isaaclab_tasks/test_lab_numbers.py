"""With Isaac Lab itself: its own environment is the oracle; isolation, and checkpoints."""

import pytest
import torch
from term_driven import TermDriven, actions

from envcoder_bench.sources.isaaclab_tasks.spec import facts_of

WALK, WIDENS = "isaaclab:small_lab:Small-Walk-v0", "isaaclab:small_lab:Small-Widens-v0"


@pytest.mark.parametrize("address", [WALK, WIDENS])
def test_groups_are_bitwise_isaac_labs_own_environment(address):
    facts, size, groups = facts_of(address), 4, 2
    from lab_reference import Reference

    reference = Reference(facts.env_cfg(), size)
    driven = TermDriven(address, size, groups)
    reference.env.sim.activate()
    reference.reset()
    for k, action in enumerate(actions(size, driven.task.num_dofs, 200)):
        driven_results = driven.step(action)
        reference.env.sim.activate()
        own = reference.step(action, k, address == WALK)
        for group in range(groups):
            mine = driven.of_group(driven_results, group)
            assert torch.equal(mine["reward_buf"], own["reward"]), (k, group)
            terms = mine["reward_terms"][:, : own["terms"].shape[1]] / driven.task.dt
            assert torch.equal(terms, own["terms"]), (k, group)
            assert torch.equal(mine["reset_buf"], own["terminated"]), (k, group)
            assert torch.equal(mine["time_outs"], own["time_outs"]), (k, group)
            for reader, name in (("obs_buf", "policy"), ("critic_buf", "critic")):
                x = own[name]
                assert torch.equal(mine[reader][:, : x.shape[1]], x), (k, group, name)
    assert reference.resets >= 5 * size
