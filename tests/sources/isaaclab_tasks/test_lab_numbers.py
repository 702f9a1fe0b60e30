"""With Isaac Lab itself: its own environment is the oracle; isolation, and checkpoints."""

import os

import pytest
import torch
from term_driven import TermDriven, actions

from envcoder_bench.sources.isaaclab_tasks.spec import facts_of

WALK, WIDENS = "isaaclab:small_lab:Small-Walk-v0", "isaaclab:small_lab:Small-Widens-v0"
SIZE = 3


@pytest.mark.parametrize("address, steps", [(WALK, 200), (WIDENS, 80)])
def test_groups_are_bitwise_isaac_labs_own_environment(address, steps):
    """Rewards term by term, terminations, observations with noise and history, commands, events and curricula."""
    facts, groups = facts_of(address), 2
    from lab_reference import Reference

    reference = Reference(facts.env_cfg(), SIZE)
    driven = TermDriven(address, SIZE, groups)
    assert len(driven.task.blocks) == 1
    reference.env.sim.activate()
    reference.reset()
    first = reference.env.command_manager.get_term("base_velocity").cfg.ranges.lin_vel_x
    beginning = driven.task.get_state()
    for k, action in enumerate(actions(SIZE, driven.task.num_dofs, steps)):
        results = driven.step(action)
        reference.env.sim.activate()
        own = reference.step(action, k, every_step=address == WALK)
        for group in range(groups):
            mine = driven.of_group(results, group)
            assert torch.equal(mine["reward_buf"], own["reward"]), (k, group)
            terms = mine["reward_terms"][:, : own["terms"].shape[1]] / driven.task.dt
            assert torch.equal(terms, own["terms"]), (k, group)
            assert torch.equal(mine["reset_buf"], own["terminated"]), (k, group)
            assert torch.equal(mine["time_outs"], own["time_outs"]), (k, group)
            for reader, name in (("obs_buf", "policy"), ("critic_buf", "critic")):
                x = own[name]
                assert torch.equal(mine[reader][:, : x.shape[1]], x), (k, group, name)
    last = reference.env.command_manager.get_term("base_velocity").cfg.ranges.lin_vel_x
    assert reference.resets >= steps // 40 * SIZE and (first == last) == (address == WALK)
    live = driven.task.blocks[0].command_manager.get_term("base_velocity").cfg.ranges
    assert live.lin_vel_x == last
    driven.task.set_state(beginning)  # as an evaluation does
    live = driven.task.blocks[0].command_manager.get_term("base_velocity").cfg.ranges
    assert live.lin_vel_x == first


def upright(env):
    return env.scene["robot"].data.projected_gravity_b[:, 2]


OTHERS = [
    {"rewards": {"track": 3.0, "feet": None, "mine": upright}},
    {"observations": {"policy": {"spin": None, "joint_pos": {"history_length": 2}}, "critic": {"height": upright}}},
    {"observations": {"critic": {"joint_vel": None}}, "terminations": {"low": {"params": {"height": 0.35}}}},
    {"events": {"push": {"interval_range_s": (0.05, 0.1)}, "mass": None}, "commands": {
        "base_velocity": {"ranges": {"lin_vel_x": (0.0, 3.0)}}}},
    {"curriculum": {"weight": {"params": {"weight": -1.0, "num_steps": 5}}}},
]  # fmt: skip
OTHERS[1]["observations"]["critic"]["height"] = lambda env: upright(env).unsqueeze(1)


def stricter(env, env_ids, term):
    """Set numbers of all kinds of configs by what the environments that begin anew did."""
    done = float(torch.mean(env.reward_manager._episode_sums[term][env_ids]))
    command = env.command_manager.get_term("base_velocity").cfg
    command.resampling_time_range = (0.1, 0.1 + 0.2 * abs(done))
    command.ranges.ang_vel_z = (command.ranges.ang_vel_z[0] - 0.01, abs(done))
    feet = env.reward_manager.get_term_cfg("feet")
    feet.weight = feet.weight + 0.1 * done
    feet.params["threshold"] = 0.05 + 0.1 * abs(done)
    env.termination_manager.get_term_cfg("low").params["height"] = 0.25 + 0.01 * done
    env.event_manager.get_term_cfg("push").params["velocity_range"]["x"] = (-abs(done), 0.5)
    env.event_manager.get_term_cfg("joints").params["position_range"] = (-0.2, 0.1 * abs(done))


def widest(env):
    """A reward that reads the numbers of a command."""
    return torch.full((env.num_envs,), env.command_manager.get_term("base_velocity").cfg.ranges.ang_vel_z[1])


def asks(env):
    """What is observed of them."""
    return torch.full((env.num_envs, 1), env.command_manager.get_term("base_velocity").cfg.resampling_time_range[1])


def judged():
    """Candidates of a task whose curriculum sets other numbers for each, and which share a block."""
    from isaaclab.managers import CurriculumTermCfg, ObservationTermCfg, RewardTermCfg

    common = {
        "curriculum": {"stricter": CurriculumTermCfg(func=stricter, params={"term": "track"})},
        "observations": {"critic": {"asks": ObservationTermCfg(func=asks)}},
    }
    rewards = [
        {},
        {"track": 3.0, "mine": RewardTermCfg(func=upright, weight=1.0)},
        {"feet": {"weight": 0.9, "params": {"threshold": 0.02}}, "smooth": None},
        {"widest": RewardTermCfg(func=widest, weight=0.5)},
    ]
    return [{**common, "rewards": {"force": -2e-3, **each}} for each in rewards]


@pytest.fixture(scope="module", params=[WALK, WIDENS])
def among(request):
    """Steps of all groups together, and where they go on from the middle."""
    patches = OTHERS if request.param == WALK else [*judged(), OTHERS[3]]
    task = TermDriven(request.param, SIZE, len(patches), patches=patches, seeds=range(len(patches)))
    steps = actions(SIZE, task.task.num_dofs, 60)
    results, state = [], None
    for k, action in enumerate(steps):
        results.append(task.step(action))
        if k == 39:
            state = task.task.get_state()
    return task, steps, results, state, patches, TermDriven(request.param, SIZE)


@pytest.mark.parametrize("group", range(5))
def test_a_group_among_others_has_the_bits_of_the_group_alone(among, group):
    """One task takes the groups in turn, of which nothing may be left."""
    task, steps, results, _, patches, alone = among
    alone.attach([patches[group]], seeds=[group])
    assert not task.task.faults and not alone.task.faults
    ends = 0
    for k, action in enumerate(steps):
        expected, mine = alone.step(action), task.of_group(results[k], group)
        ends += int(expected["ended"].sum())
        for name, x in expected.items():
            assert torch.equal(mine[name], x), (k, name)
    assert ends >= SIZE


def test_groups_share_a_block_with_other_numbers_of_each(among):
    blocks = among[0].task.blocks
    if among[4] is not OTHERS:
        assert [len(block.groups) for block in blocks] == [4, 1]
        variants = [len(x.variants) for x in (*blocks[0].settings.commands.values(), *blocks[0].settings.others)]
        assert variants.count(4) >= 5
        (feet,) = [x for x in blocks[0].settings.others if x.name == "rewards/feet" and len(x.users) == 3]
        assert len(feet.groups) == 4 and len(feet.variants) == 3  # a group between users adds no run


def test_a_task_goes_on_bitwise_from_a_checkpoint(among):
    other, steps, results, state, patches, _ = among
    other.attach(patches, seeds=range(len(patches)))
    other.step(steps[0])
    other.task.set_state(state)
    other.steps = 40
    for k in range(40, 60):
        mine = other.step(steps[k])
        assert all(torch.equal(mine[name], x) for name, x in results[k].items()), k


def test_these_tests_ran_with_the_release_that_was_asked_for():
    import isaaclab

    older = "isaaclab-2.2" in os.environ.get("ISAACLAB_PATH", "")
    assert isaaclab.__version__.startswith("0.44" if older else "0.54")
