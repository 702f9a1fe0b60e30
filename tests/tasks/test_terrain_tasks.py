"""AnymalTerrain and SpotTerrain: levels and types, the curriculum, the height scan, commands, and their promises."""

import math
from typing import Any

import pytest
import torch
from task_helpers import fake, shipped

from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import EnvGroups
from envcoder_bench.tasks.terrain_locomotion import arctan2, grid_of

TASKS = ("AnymalTerrain", "SpotTerrain")
pytestmark = pytest.mark.parametrize("name", TASKS)


def groups(count: int, envs: int, seeds=None) -> EnvGroups:
    n = count * envs
    none = torch.zeros(n, dtype=torch.bool)
    seeds = torch.tensor(seeds or [0] * count).repeat_interleave(envs)
    return EnvGroups(envs, seeds, torch.arange(envs).repeat(count), torch.zeros(n, 12), none, none, none)


def begun(name: str, envs: int = 40) -> Any:
    """A fake task whose episodes have begun where they should."""
    task: Any = fake(name, envs)
    task.attach(groups(1, envs))
    everywhere = torch.ones(envs, dtype=torch.bool)
    task.prepare_reset(everywhere)
    task.reset(everywhere, task.default_state, {})
    task.reset(everywhere, {}, {"commands": torch.tensor([1.0, 0.0, 0.0, 0.0]).repeat(envs, 1)})
    return task, everywhere


def walk(task, metres: float) -> None:
    task.state["root_states"][:, :2] = task.state["env_origins"][:, :2]
    task.state["root_states"][:, 0] += metres


def test_episodes_begin_at_tile_centres_of_the_first_level(name):
    task, _ = begun(name)
    state = task.state
    assert set(state["terrain_levels"].tolist()) == {0.0}
    origins = torch.from_numpy(task.grid.origins)[0, state["terrain_types"].long()]
    assert torch.equal(state["env_origins"], origins)
    height = float(shipped(name)["env"]["baseInitState"]["pos"][2])
    torch.testing.assert_close(state["root_states"][:, 2], origins[:, 2] + height)
    assert len(state["terrain_types"].unique()) == 20


def test_curriculum_level_rises_with_distance_and_falls_without(name):
    task, everywhere = begun(name)
    for metres, level in ((4.5, 1), (4.5, 2), (4.5, 3), (1.0, 2), (5.5, 3), (1.0, 2), (1.0, 1), (0.0, 0), (0.0, 0)):
        walk(task, metres)
        task.prepare_reset(everywhere)
        assert set(task.state["terrain_levels"].tolist()) == {float(level)}
        assert torch.equal(task.state["initial_root_states"][:, :2], task.state["env_origins"][:, :2])


def test_only_masked_environments_change_their_level(name):
    task, everywhere = begun(name)
    mask = everywhere.clone()
    mask[::2] = False
    before = task.state["env_origins"].clone()
    walk(task, 4.5)
    task.prepare_reset(mask)
    assert torch.equal(task.state["terrain_levels"], mask.float())
    assert torch.equal(task.state["env_origins"][~mask], before[~mask])


def test_unstable_physics_does_not_raise_the_level(name):
    task, everywhere = begun(name)
    walk(task, 50.0)
    task.unstable.fill_(True)
    task.prepare_reset(everywhere)
    assert set(task.state["terrain_levels"].tolist()) == {0.0}


def test_levels_are_random_after_the_last_level(name):
    task, everywhere = begun(name, 200)
    task.state["terrain_levels"].fill_(9.0)
    walk(task, 4.5)
    task.step_count = 77
    task.prepare_reset(everywhere)
    assert set(task.state["terrain_levels"].tolist()) == {float(k) for k in range(10)}


@pytest.mark.slow
def test_levels_depend_on_seed_and_lane_but_not_on_other_groups(name):
    cfg = shipped(name)
    cfg["env"]["terrain"]["maxInitMapLevel"] = 9
    alone, among = (find_spec(name).make(cfg, n, "mujoco_cpu", "cpu") for n in (6, 18))
    alone.attach(groups(1, 6, [3]))
    among.attach(groups(3, 6, [4, 3, 3]))
    levels, types = (among.state[key].view(3, 6) for key in ("terrain_levels", "terrain_types"))
    assert torch.equal(alone.state["terrain_levels"], levels[1]) and torch.equal(levels[1], levels[2])
    assert not torch.equal(levels[0], levels[1])
    assert torch.equal(types[0], types[1]) and torch.equal(types[1], alone.state["terrain_types"])


def test_evaluations_are_spread_evenly_without_curriculum(name):
    task, everywhere = begun(name, 400)
    task.step_count = EVALUATION_STEP
    task.restart()
    levels, types = task.state["terrain_levels"].clone(), task.state["terrain_types"]
    assert levels.long().bincount(minlength=10).tolist() == pytest.approx([40] * 10, abs=2)
    assert types.long().bincount(minlength=20).tolist() == pytest.approx([20] * 20, abs=2)
    assert len(set(zip(levels.tolist(), types.tolist()))) > 180  # of 200 tiles
    task.prepare_reset(everywhere)
    walk(task, 4.5)
    task.prepare_reset(everywhere)
    assert torch.equal(task.state["terrain_levels"], levels)
    task.step_count = 0
    task.restart()
    assert set(task.state["terrain_levels"].tolist()) == {0.0}


def test_only_first_training_episodes_begin_late(name):
    task: Any = fake(name, 400)
    task.attach(groups(1, 400))
    everywhere = torch.ones(400, dtype=torch.bool)
    task.prepare_reset(everywhere)
    first = task.first_progress.clone()
    assert first.min() < 50 and first.max() > 900 and first.max() < task.max_episode_length - 1
    task.prepare_reset(everywhere)
    assert not task.first_progress.any()
    task.step_count = EVALUATION_STEP
    task.restart()
    task.prepare_reset(everywhere)
    assert not task.first_progress.any()


def test_checkpoint_restores_the_levels(name):
    task, everywhere = begun(name)
    walk(task, 4.5)
    task.prepare_reset(everywhere)
    task.reset(everywhere, task.default_state, {})
    other: Any = fake(name, 40)
    other.set_state(task.get_state())
    for one in (task, other):
        walk(one, 4.5)
        one.prepare_reset(everywhere)
    assert torch.equal(other.state["terrain_levels"], task.state["terrain_levels"])
    assert torch.equal(other.state["initial_root_states"], task.state["initial_root_states"])
    assert set(other.state["terrain_levels"].tolist()) == {2.0}


def test_height_scan_matches_the_ground_under_the_robot(name):
    task, _ = begun(name)
    state, count = task.state, len(task.scan_x) * len(task.scan_y)
    assert state["measured_heights"].shape == (40, count)
    places = state["root_states"][:, None, :2] + task._points
    assert torch.equal(state["measured_heights"], task.lookup.heights(places))
    walk(task, 3.0)
    task.step(torch.zeros(40, 12))
    places = state["root_states"][:, None, :2] + task._points
    assert torch.equal(state["measured_heights"], task.lookup.heights(places))


def test_yaw_rate_follows_the_commanded_heading(name):
    task, everywhere = begun(name)
    gain, most = task.heading_gain, task.most_yaw
    for yaw, heading, error in ((0.0, 0.5, 0.5), (3.0, -3.0, 2 * math.pi - 6.0), (-2.0, 1.0, 3.0), (0.3, 0.3, 0.0)):
        root = task.state["initial_root_states"].clone()
        root[:, 3:7] = torch.tensor([0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2)])
        task.reset(everywhere, {**task.default_state, "root_states": root}, {})
        task.reset(everywhere, {}, {"commands": torch.tensor([1.0, 0.0, 9.0, heading]).repeat(40, 1)})
        expected = max(-most, min(most, gain * error))
        assert task.state["commands"][:, 2].tolist() == pytest.approx([expected] * 40, abs=1e-4)


def test_feet_air_time_is_reset_in_the_step_after_contact(name):
    task, _ = begun(name, 2)
    feet, dt = task.constants["feet_indices"], task.dt
    seen = []
    for force in (0.0, 0.0, 50.0, 50.0, 0.0, 0.0):  # N, after the step
        task.sim.contact_forces.zero_()
        force_before = 50.0 if seen and seen[-1][0] > 1 else 0.0
        task.sim.contact_forces[:, feet, 2] = force_before
        task.step(torch.zeros(2, 12))
        task.sim.contact_forces[:, feet, 2] = force
        seen.append((force, round(float(task.state["feet_air_time"][0, 0]) / dt)))
    assert [steps for _, steps in seen] == [1, 2, 3, 0, 0, 1]


def test_last_actions_and_velocities_are_those_before_the_step(name):
    task, everywhere = begun(name, 3)
    actions = task._groups.actions
    for k in range(3):
        actions.fill_(float(k + 1))
        before = task.state["dof_vel"].clone()
        task.step(torch.full((3, 12), 0.5))
        assert torch.equal(task.state["last_actions"], torch.full((3, 12), float(k)))
        assert torch.equal(task.state["last_dof_vel"], before)
    task.reset(everywhere, task.default_state, {})
    assert not task.state["last_actions"].any() and not task.state["last_dof_vel"].any()


def test_plane_has_no_heights_and_no_levels(name):
    cfg = shipped(name)
    cfg["env"]["terrain"]["terrainType"] = "plane"
    assert grid_of(cfg) is None
    task: Any = find_spec(name).make(cfg, 3, "mujoco_cpu", "cpu")
    everywhere = torch.ones(3, dtype=torch.bool)
    for _ in range(3):
        task.prepare_reset(everywhere)
        task.reset(everywhere, task.default_state, {})
        task.step(task.default_dof_target(torch.zeros(3, 12), task.state))
    assert not task.state["measured_heights"].any() and not task.state["terrain_levels"].any()


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("terrainType", "cliffs", "terrainType must be plane, trimesh or heightfield, not cliffs"),
        ("numLevels", 0, "task.env.terrain: a grid needs at least one level"),
        ("terrainProportions", [0.9, 0.9], "task.env.terrain: terrain proportions must add up to at most 1"),
        ("terrainProportions", None, "task.env.terrain: "),
    ],
)
def test_invalid_terrain_is_refused(name, key, value, message):
    cfg = shipped(name)
    cfg["env"]["terrain"][key] = value
    with pytest.raises(ValueError, match=message):
        grid_of(cfg)


def test_arctan2_matches_torch_atan2(name):
    torch.manual_seed(0)
    y, x = torch.randn(2, 10_000)
    assert (arctan2(y, x) - torch.atan2(y, x)).abs().max() < 2e-5
