"""Environment classes of a task's own: against the class itself, isolation, checkpoints, and a ranking."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from term_driven import actions

import envcoder_bench
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import EnvGroups

SEED = 42  # of terrains

PLAIN, DRAWING = "isaaclab:small_direct:Small-Plain-v0", "isaaclab:small_direct:Small-Drawing-v0"
OWN, OWN_PLAIN = "isaaclab:small_own:small_legs", "isaaclab:small_own:small_plain"
SIZE, STEPS = 3, 60


class Driven:
    """A task in steps, with the resets of its own class."""

    def __init__(self, address, groups, seeds=(0,)):
        spec, n = find_spec(address), SIZE * groups
        self.task, self.actions = spec.make({"name": spec.name}, n, "mujoco_cpu", "cpu"), torch.zeros(n, 8)
        self.attach(seeds)

    def attach(self, seeds):
        n = len(self.actions)
        nowhere, lanes = torch.zeros(n, dtype=torch.bool), torch.arange(SIZE).repeat(n // SIZE)
        seeds = torch.tensor(seeds).repeat_interleave(n // len(seeds))
        self.task.attach(EnvGroups(SIZE, seeds, lanes, self.actions, nowhere, nowhere, nowhere))
        self.task.step_count = self.steps = 0
        self.task._spread = False
        self.task.prepare_reset(~nowhere)
        self.task.settle()

    def step(self, action):
        task = self.task
        self.actions.copy_(action.repeat(len(self.actions) // SIZE, 1))
        task.step_count = self.steps
        task.step(torch.empty(0))
        self.steps += 1
        results = {name: task.state[name].clone() for name in ("reward_buf", "reset_buf")}
        ended = results["ended"] = task.state["reset_buf"] | task.timed_out
        task.step_count = self.steps
        task.prepare_reset(ended)
        task.settle()
        names = ["obs_buf", "critic_buf", "height", "last_actions", "robot.joint_acc", "robot.body_pos_w"]
        return {**results, **{name: task.state[name].clone() for name in names if name in task.state}}


def test_groups_are_bitwise_the_class_itself():
    """Isaac Lab's own ``step`` decides when an episode ends, and resets."""
    driven = Driven(PLAIN, 2)
    from envcoder_bench.sources.isaaclab_tasks.direct import DirectWorld

    own = DirectWorld(driven.task._facts.source, SIZE, "cpu")
    own.env.phase.copy_(driven.task.env.phase[:SIZE])
    own.env.reset()
    ends = 0
    for k, action in enumerate(actions(SIZE, 8, STEPS)):
        mine = driven.step(action)
        own.sim.activate()
        observed, reward, terminated, time_outs, _ = own.env.step(action)
        ends += int((terminated | time_outs).sum())
        for group in (slice(0, SIZE), slice(SIZE, None)):
            assert torch.equal(mine["reward_buf"][group], reward), k
            assert torch.equal(mine["reset_buf"][group], terminated), k
            assert torch.equal(mine["obs_buf"][group], observed["policy"]), k
            assert torch.equal(mine["critic_buf"][group], observed["critic"]), k
    assert ends >= SIZE


def test_groups_are_bitwise_a_class_that_resets_and_observes_in_its_step():
    driven = Driven(OWN_PLAIN, 2)
    from envcoder_bench.sources.isaaclab_tasks.view import TERRAIN

    SimulationContext = type(driven.task.world.sim)
    SimulationContext.clear_instance()
    cfg, make = driven.task._facts.source.own_environment()
    cfg.scene.num_envs, cfg.scene.env_spacing, cfg.scene.seed, cfg.device = SIZE, 0.0, SEED, "cpu"
    own, terrain = make(cfg, True), driven.task.env.scene.terrain
    for name in TERRAIN:
        getattr(own.scene.terrain, name).copy_(getattr(terrain, name)[:SIZE])
    lags = driven.task.env.action_buffer.time_lags[:SIZE]
    own.action_buffer.set_time_lag(lags, torch.arange(SIZE))
    own.reset(torch.arange(SIZE))
    own.compute_observations()
    ends = 0
    for k, action in enumerate(actions(SIZE, 8, STEPS)):
        mine = driven.step(action)
        own.sim.activate()
        actor, reward, ended, extras = own.step(action)
        ends += int(ended.sum())
        for group in (slice(0, SIZE), slice(SIZE, None)):
            assert torch.equal(mine["reward_buf"][group], reward), k
            assert torch.equal(mine["ended"][group], ended), k
            assert torch.equal(mine["obs_buf"][group], actor), k
            assert torch.equal(mine["critic_buf"][group], extras["observations"]["critic"]), k
    assert ends >= SIZE
    driven.task.env.episode_length_buf.fill_(100)  # a candidate may go on where the class would end the episode
    driven.task.step(torch.empty(0))
    assert driven.task.timed_out.all() and (driven.task.env.episode_length_buf == 101).all()


@pytest.mark.parametrize("address", [DRAWING, OWN])
def test_groups_alone_have_the_bits_that_they_have_among_others_and_after_a_checkpoint(address):
    among, alone = Driven(address, 3, seeds=(0, 1, 0)), Driven(address, 1)
    steps, results = actions(SIZE, 8, STEPS), []
    for k, action in enumerate(steps):
        results.append(among.step(action))
        if k == 39:
            state = among.task.get_state()
    among.attach((0, 1, 0))
    among.step(steps[0])
    among.task.set_state(state)
    among.steps = 40
    for k in range(40, STEPS):
        mine = among.step(steps[k])
        assert all(torch.equal(mine[name], x) for name, x in results[k].items()), k
    for group, seed in enumerate((0, 1, 0)):
        alone.attach((seed,))
        for k, action in enumerate(steps):
            for name, x in alone.step(action).items():
                assert torch.equal(results[k][name][group * SIZE : (group + 1) * SIZE], x), (k, name)
    assert sum(int(x["ended"][:SIZE].sum()) for x in results) >= SIZE
    view = among.task.env.robot.root_physx_view
    masses, centres = view.get_masses()[:, 0].split(SIZE), view.get_coms()[:, 0, 0]
    assert torch.equal(masses[0], masses[2]) and not torch.equal(masses[0], masses[1])
    assert centres.abs().max() <= 0.05  # the event was applied once
    assert not torch.equal(results[-1]["obs_buf"][:SIZE], results[-1]["obs_buf"][SIZE : 2 * SIZE])
    if address == OWN:  # its curriculum moves environments to other levels, and in evaluations they stay
        terrain, trained = alone.task.env.scene.terrain, alone.task.env.scene.terrain.terrain_levels.clone()
        alone.task.step_count = alone.steps = EVALUATION_STEP
        alone.task.restart()
        evaluated = terrain.terrain_levels.clone()
        ends = sum(int(alone.step(action)["ended"].sum()) for action in steps)
        assert ends >= SIZE and torch.equal(terrain.terrain_levels, evaluated) and trained.max() > 1


def test_levels_stay_in_evaluations_and_change_in_training_however_the_method_is_called():
    from envcoder_bench.sources.isaaclab_tasks.scene_state import SceneState

    class Terrain:
        def update_env_origins(self, env_ids, move_up, move_down):
            calls.append((env_ids, move_up, move_down))

    calls, state = [], SceneState()
    state.scene = SimpleNamespace(terrain=Terrain())
    state.keep_levels()
    for state.evaluates in (True, False):
        state.scene.terrain.update_env_origins(1, move_up=2, move_down=3)
        state.scene.terrain.update_env_origins(1, 2, 3)
        assert len(calls) == (0 if state.evaluates else 2)
    assert {*calls} == {(1, 2, 3)}


def test_a_failure_in_any_physics_step_is_seen():
    driven = Driven(PLAIN, 1)
    env, apply, steps = driven.task.env, driven.task.env._apply_action, itertools.count()

    def failing():
        apply()
        if next(steps) == 0:
            env.robot.write_root_velocity_to_sim(torch.full((1, 6), float("nan")), torch.tensor([1]))

    env._apply_action = failing
    driven.task.step(torch.empty(0))
    assert driven.task.unstable.tolist() == [False, True, False]
    driven.task.step(torch.empty(0))
    assert not driven.task.unstable.any()


MINE = """
import torch


def compute_reward(state_dict):
    height = state_dict["robot.root_pos_w"][:, 2]
    return torch.exp(-(height - 0.4).abs()), {"height": height}


def compute_observation(state_dict):
    return state_dict["obs_buf"][:, :11]
"""


@pytest.mark.slow
def test_candidates_replace_functions_of_the_class(tmp_path):
    few = {"evaluation.num_envs": 2, "evaluation.points": 1, "evaluation.final_episodes": 2, "compile_shapers": False}
    settings = dict(learning_iterations=1, num_envs_per_candidate=4, seeds=1, device="cpu", baselines=False)
    run = envcoder_bench.evaluate(PLAIN, {"mine": MINE, "broken": "def compute_reward(x):\n    return x.nothing\n"},
                                  output_dir=tmp_path / "run", **settings, **few)  # fmt: skip
    rows = {row.candidate: row for row in run.rows}
    assert rows["mine"].status == "ok" and rows["broken"].status.startswith("failed")
