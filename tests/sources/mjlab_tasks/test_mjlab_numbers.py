"""With mjlab itself: its own environment is the oracle; isolation, and checkpoints."""

import copy
from dataclasses import replace

import pytest
import torch
from driven import CARTPOLE, G1, GO1, LIFT, ROUGH_GO1, Driven, actions

from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.sources.mjlab_tasks import source
from envcoder_bench.sources.mjlab_tasks.spec import facts_of
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.spec import Can

pytest.importorskip("mjlab")
pytestmark = pytest.mark.slow  # constructing a scene takes a second


# mjlab's own numbers


@pytest.mark.parametrize(
    "name, groups, steps",
    [
        *((CARTPOLE, 1, 200), (CARTPOLE, 3, 50), (GO1, 1, 60), (GO1, 3, 50), (LIFT, 1, 64), (LIFT, 3, 32)),
        *((G1, 1, 60), (ROUGH_GO1, 2, 33)),
    ],
)
def test_human_is_bitwise_mjlabs_own_environment_alone_and_among_others(name, groups, steps, short_episodes):
    from reference import Reference

    size = 2 if name == ROUGH_GO1 else 4  # its terrain is slow with Warp on a CPU
    driven = Driven(name, size, groups, backend="warp")
    facts = facts_of(f"mjlab:{name}")
    reference = Reference(facts.source.env_cfg(), size)
    own = reference.reset()
    widths = facts.own_widths
    buffers = {"actor": "obs_buf", "critic": "critic_buf"}
    for k, action in enumerate(actions(size, driven.task.num_dofs, steps)):
        own, reward, terminated, time_outs = reference.step(action, k)
        results = driven.step(action)
        for group in range(groups):
            mine = driven.of_group(results, group)
            assert torch.equal(mine["reward_buf"], reward), (k, group)
            assert torch.equal(mine["reset_buf"], terminated) and torch.equal(mine["time_outs"], time_outs), (k, group)
            for kind, x in own.items():
                assert torch.equal(mine[buffers[kind]][:, : widths[kind]], x), (k, group, kind)
    assert reference.resets >= size


@pytest.mark.parametrize("backend", ["mujoco", "warp"])
def test_half_the_physics_step_is_nearer_to_a_fine_one_and_changes_no_other_time(backend):
    states = {}
    for substeps in (1, 2, 16):
        driven = Driven(CARTPOLE, 2, 1, backend, substeps)
        for action in actions(2, driven.task.num_dofs, 20):
            driven.step(action)
        task = driven.task
        states[substeps] = task.world.sim.data.qpos[:].clone()
        assert task.dt == driven.task.world.env.step_dt and int(task.world.episode_length_buf[0]) == 20
        assert task.world.env.physics_dt == pytest.approx(substeps * task.world.sim.mj_model.opt.timestep)
    errors = [(states[substeps] - states[16]).abs().max() for substeps in (1, 2)]
    assert 0.0 < errors[1] < 0.7 * errors[0]
    assert Can.HALF_STEP in find_spec(f"mjlab:{CARTPOLE}").can


def last_rewards(env):
    """What some packages' critics read: the last step's terms, and here the weights, too."""
    if not hasattr(env, "reward_manager"):  # while mjlab constructs the observations
        return torch.zeros(env.num_envs, 1 + len(env.cfg.rewards))
    manager = env.reward_manager
    assert manager._term_names == manager.active_terms == list(env.cfg.rewards)
    weights = torch.full((env.num_envs, 1), sum(cfg.weight for cfg in manager._term_cfgs))
    return torch.cat([manager._step_reward, weights], dim=1)


def leans(env):
    return env.action_manager.action.sum(dim=1)


@pytest.fixture(scope="module")
def reads_rewards():
    """Registers a task whose critic reads the reward manager."""
    from mjlab.managers.observation_manager import ObservationTermCfg
    from mjlab.tasks.registry import load_env_cfg, load_rl_cfg, register_mjlab_task

    cfg = load_env_cfg(CARTPOLE)
    cfg.observations["critic"].terms["last_rewards"] = ObservationTermCfg(func=last_rewards)
    cfg.rewards["leans"] = replace(cfg.rewards["smooth_reward"], func=leans, weight=0.0, params={})
    register_mjlab_task("Reads-Rewards", cfg, cfg, load_rl_cfg(CARTPOLE))
    return "Reads-Rewards"


@pytest.mark.parametrize("scaled", [True, False])
def test_the_reward_manager_that_a_groups_code_reads_is_bitwise_mjlabs(reads_rewards, scaled, monkeypatch):
    from reference import Reference

    from envcoder_bench.sources.term_tasks.patches import patched

    registered = source.Source.env_cfg

    def env_cfg(self):
        cfg = registered(self)
        cfg.scale_rewards_by_dt, cfg.episode_length_s = scaled, 0.3
        return cfg

    monkeypatch.setattr(source.Source, "env_cfg", env_cfg)
    patches = [
        {},
        {"rewards": {"smooth_reward": 2.5, "leans": -0.3}},
        {
            "observations": {"actor": {"pole_vel": None}},
            "rewards": {"smooth_reward": 2.5, "leans": -0.3},
        },  # shares a block
        {"rewards": {"smooth_reward": None}},
        {"rewards": {"more": leans}},
    ]
    driven = Driven(reads_rewards, 4, len(patches), backend="warp", patches=patches)
    facts = facts_of(f"mjlab:{reads_rewards}")
    cfgs = patched(facts.dialect, facts.env_cfg(), patches, facts.actor)
    references = [Reference(copy.deepcopy(cfg), 4) for cfg in cfgs]
    for reference in references:
        reference.reset()
    for k, action in enumerate(actions(4, 1, 20)):
        results = driven.step(action)
        for group, reference in enumerate(references):
            critic = reference.step(action, k)[0]["critic"]
            assert torch.equal(driven.of_group(results, group)["critic_buf"][:, : critic.shape[1]], critic), (k, group)
    assert references[0].resets and len(driven.task.blocks) == 4


# isolation

MORE = {"rewards": {"mine": lambda env: env.action_manager.action.square().sum(dim=1)}}


@pytest.mark.parametrize("name", [CARTPOLE, GO1, G1, LIFT, ROUGH_GO1])
def test_alone_as_among_others_with_other_terms_commands_and_events(name):
    cfg = facts_of(f"mjlab:{name}").source.env_cfg()
    weights = {"rewards": {name: 3.0 * term.weight for name, term in cfg.rewards.items()}}
    event = next(name for name, term in cfg.events.items() if term.mode == "reset")
    others = [{"events": {event: None}}, weights, MORE]
    size = 5
    alone, among = Driven(name, size, limit=15), Driven(name, size, 5, patches=[{}, *others, {}], limit=15)
    for k, action in enumerate(actions(size, alone.task.num_dofs, 40)):
        expected, results = alone.step(action), among.step(action)
        for group in (0, 4):
            for key, x in among.of_group(results, group).items():
                assert torch.equal(x, expected[key]), (k, group, key)
    weighted, more = (among.of_group(results, group)["reward_buf"] for group in (2, 3))
    if name != LIFT:  # whose curriculum sets a weight, the candidate's included
        assert torch.allclose(weighted, 3.0 * expected["reward_buf"], 1e-4, 1e-6)
    assert not torch.equal(more, expected["reward_buf"])


def test_a_reset_of_a_neighbour_writes_no_commands_of_a_group():
    driven = Driven(CARTPOLE, 2, 2)
    world, ctrl = driven.task.world, driven.task.world.sim.data.ctrl
    for of_neighbour, written in ((True, [False, False, True, True]), (False, [True, True, False, False])):
        ctrl[:] = 7.0  # as an actuator whose torque follows from the state computes another one after the step
        mask = torch.tensor([False, not of_neighbour, of_neighbour, False])
        world.begun(mask)
        assert (ctrl[:, 0] != 7.0).tolist() == written


def test_lanes_of_all_groups_share_terrain_curricula_move_them_and_evaluations_are_spread_over_all_levels():
    size = 14
    driven = Driven(ROUGH_GO1, size, 2, patches=[{}, MORE])
    terrain, everyone = driven.task.world.scene.terrain, torch.ones(2 * size, dtype=torch.bool)
    types, first = terrain.terrain_types.clone(), terrain.terrain_levels.clone()
    assert set(types.tolist()) == set(range(7)) and first.max() <= 5 and len(set(first.tolist())) > 3

    def after_an_episode():
        for action in actions(size, 12, 3):
            driven.step(action)
        driven._begin(everyone)
        levels = terrain.terrain_levels
        assert torch.equal(levels[:size], levels[size:]) and torch.equal(types[:size], types[size:])
        assert torch.equal(terrain.env_origins, terrain.terrain_origins[levels, types])
        return levels.clone()

    lower = after_an_episode()
    assert (lower <= first).all() and (lower < first).any()  # nobody walked as far as its command
    for step, begins in ((EVALUATION_STEP, None), (0, first)):
        driven.steps = driven.task.step_count = step
        driven.task.restart()
        levels = terrain.terrain_levels.clone()
        driven._begin(everyone)
        if begins is None:
            assert levels.min() == 0 and levels.max() == 9 and len(set(levels.tolist())) == 10
            assert torch.equal(after_an_episode(), levels)
        else:
            assert torch.equal(levels, first) and torch.equal(after_an_episode(), lower)


def test_one_observation_patch_changes_no_other_groups_draws_and_each_group_draws_with_its_seed():
    size, seeds = 4, (3, 3, 8)
    patch = {"observations": {"actor": {"command": None}}}
    among = Driven(GO1, size, 3, patches=[{}, patch, {}], seeds=seeds)
    alone = [Driven(GO1, size, seeds=(seed,)) for seed in (3, 8)]
    for action in actions(size, 12, 6):
        expected, other, results = *(one.step(action) for one in alone), among.step(action)
    for group, x in ((0, expected), (2, other)):
        assert torch.equal(among.of_group(results, group)["obs_buf"], x["obs_buf"])
    width = facts_of(f"mjlab:{GO1}").own_widths["actor"]
    patched = among.of_group(results, 1)["obs_buf"]
    # the command is the last term, so that those before it are unchanged, noise included
    assert torch.equal(patched[:, : width - 3], expected["obs_buf"][:, : width - 3])
    assert not patched[:, width - 3 :].any() and not torch.equal(expected["obs_buf"], other["obs_buf"])


def test_a_registered_term_that_is_not_finite_is_0_as_in_mjlab():
    bad = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.5])

    def registered(env):
        return bad.repeat(env.num_envs // 4)

    driven = Driven(CARTPOLE, 4, 2, patches=[{"rewards": {"bad": registered, "smooth_reward": None}}, {}])
    results = driven.of_group(driven.step(torch.zeros(4, 1)), 0)
    expected = torch.tensor([0.0, 0.0, 0.0, 0.5 * driven.task.dt])
    assert torch.equal(results["reward_buf"], expected) and torch.equal(results["reward_terms"][:, 0], expected)
    assert not driven.task.faults


# checkpoints


@pytest.mark.parametrize("name", [CARTPOLE, GO1])
@pytest.mark.parametrize("backend", ["mujoco", "warp"])
def test_a_restored_task_continues_bitwise(name, backend):
    size = 3
    history = {"observations": {"actor": {"history_length": 2}}, **MORE}
    first, second = (
        Driven(name, size, 2, backend, patches=[{}, history], limit=9, begin=begins) for begins in (True, False)
    )
    sequence = actions(size, first.task.num_dofs, 30)
    for action in sequence[:14]:
        first.step(action)
    second.task.set_state(first.task.get_state())
    second.steps = first.steps
    for action in sequence[14:]:
        one, other = first.step(action), second.step(action)
        assert all(torch.equal(one[key], other[key]) for key in one)
