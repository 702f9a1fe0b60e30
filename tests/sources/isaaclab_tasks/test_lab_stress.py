"""With Isaac Lab itself: its robots meet the disturbances of the stress grid."""

import math
from dataclasses import replace

import pytest
import torch
from scripted_policies import Script, disturbed, groups_of, stress_of
from term_driven import TermDriven, actions

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.results.stress import Settings
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.sim.base import Variation
from envcoder_bench.sources.isaaclab_tasks.source import Source
from envcoder_bench.stress import episodes
from envcoder_bench.stress.commands import probe_commands
from envcoder_bench.stress.disturbed_env import DisturbedEnv
from envcoder_bench.stress.episodes import acting
from envcoder_bench.torch_utils import quat_rotate_inverse
from isaaclab_mujoco.assets import find

pytestmark = pytest.mark.slow  # a scene takes a second, and finding a task more
WALK, CART, TEXT = "isaaclab:small_lab:Small-Walk-v0", "isaaclab:small_lab:Small-Cart-v0", "rewards = {}\n"
DIRECT, OWN = "isaaclab:small_direct:Small-", "def compute_reward(reward_buf):\n    return reward_buf\n"
SMALL = Settings(1, draws=3, episodes=2, milliseconds=200)
POLICIES = {"stands": lambda obs: 0.0 * obs[:, :8], "nods": lambda obs: 0.5 * torch.tanh(obs[:, :1]).expand(-1, 8)}
# varied environments, and the task that each equals; the first one is as the task's
FACTORS = {
    "friction": [math.nan, 0.25, *[math.nan] * 4],
    "mass": [1.0, 1.0, 2.0, 1.0, 1.0, 1.0],
    "com": [0.0, 0.0, 0.0, 0.0625, 0.0, 0.0],
    "strength": [1.0, 1.0, 1.0, 1.0, 0.5, 1.0],
    "gains": [1.0, 1.0, 1.0, 1.0, 1.0, 2.0],
}
COUNT = len(FACTORS["mass"])


@pytest.fixture(scope="module")
def walk():
    return groups_of(WALK, TEXT, list(POLICIES))


@pytest.mark.parametrize("task", [WALK, DIRECT + "Drawing-v0", "isaaclab:small_own:small_legs"])
def test_stress_is_the_same_alone_and_among_others_and_without_disturbances_the_evaluation(task, walk):
    spec, groups = walk if task == WALK else groups_of(task, OWN, list(POLICIES))
    stress = stress_of(spec, groups, POLICIES, SMALL)
    nods = [group for group in groups if group.name == "nods"]
    rows = stress_of(spec, nods, POLICIES, SMALL).rows
    assert str(rows) == str(tuple(row for row in stress.rows if row.candidate == "nods"))  # some columns are NaN
    assert len({row.fitness for row in stress.rows}) == len(stress.rows)
    assert not stress.settings.absent and len(stress.settings.notes) == ("own" in task)
    assert all(0.0 < row.motion["foot_slip"] < 0.5 for row in stress.rows)
    env = build_env(spec, [group.evaluation for group in groups], [spec.config.seed] * 2, SMALL.episodes)
    with torch.no_grad():
        act = acting(env, [Script(POLICIES[group.name]) for group in groups])
        played = run_episodes(env, act, 1, EVALUATION_STEP, steps=round(0.2 / env.task.dt))
    nominal = [row.fitness for row in stress.rows if row.draw == 0]
    assert nominal == played.fitness.double().mean(dim=1).tolist()
    if task != WALK:
        return
    assert env.task.unmeasured(0) == set()
    terms = env.task.world.dialect.terms(env.task.world.cfg, "observations")["critic"]
    assert env.task.unmeasured_by(terms.speed) == "the base's linear velocity"


@pytest.mark.parametrize("names, look", [(["nods", "folds"], 5), (["folds"], 1)])
def test_a_simulation_without_the_episodes_that_have_ended_plays_the_others_as_before(names, look, monkeypatch):
    """Of two policies one falls, and of one the draws fall one after the other."""
    spec, groups = groups_of(WALK, TEXT, names)
    settings, count = replace(SMALL, draws=5, episodes=1, milliseconds=400), 6 * len(names)
    monkeypatch.setattr(Script, "forward", lambda self, obs: self.controller(obs))  # beyond the clips
    scripts = {**POLICIES, "folds": lambda obs: 8.0 + 0.0 * obs[:, :8]}
    whole, seen = str(stress_of(spec, groups, scripts, settings).rows), []
    take_over = DisturbedEnv.take_over

    def noted(self, other, groups, kept):
        take_over(self, other, groups, kept)
        seen.append((self.num_envs, torch.equal(self.observe(), other.observe()[kept])))

    monkeypatch.setattr(DisturbedEnv, "take_over", noted)
    for name, value in (("LOOK", look), ("SHARE", 1.0), ("WORTH", {"cpu": 0}), ("_may_narrow", lambda env: True)):
        monkeypatch.setattr(episodes, name, value)
    assert str(stress_of(spec, groups, scripts, settings).rows) == whole
    assert seen and all(equal and size < count for size, equal in seen)


def driven(change=lambda cfg: None):
    """A task without random properties, whose episodes have not begun, of a config that is changed."""
    env_cfg = Source.env_cfg

    def changed(self):
        cfg = env_cfg(self)
        change(cfg)
        return cfg

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "env_cfg", changed)
        patches = [{"events": dict.fromkeys(("material", "mass", "gains"))}]
        return TermDriven(WALK, COUNT, patches=patches, begin=False)


def steps_of(change=lambda cfg: None, factors=None, forces=None, count=25):
    """Rewards by term, observations and states of the robot in steps."""
    task = driven(change)
    robot = task.task.robot()
    if factors is not None:
        robot.vary(Variation(**{name: torch.tensor(x, dtype=torch.float64) for name, x in factors.items()}))
    if forces is not None:
        robot.apply_forces(forces(robot))
    task._begin(torch.ones(COUNT, dtype=torch.bool))
    seen = []
    for action in actions(COUNT, task.task.num_dofs, count):
        results = task.step(action)
        parts = (results["reward_terms"], results["obs_buf"], robot.root_states, robot.dof_pos, robot.dof_force)
        seen.append(torch.cat([*parts, robot.contact_forces.flatten(1)], dim=1))
    return torch.stack(seen)


def set_friction(cfg):
    cfg.sim.physics_material = cfg.scene.terrain.physics_material.replace(static_friction=0.25)


def scaled(strength, gains):
    def change(cfg):
        legs = cfg.scene.robot.actuators["legs"]
        legs.stiffness, legs.damping = legs.stiffness * strength * gains, legs.damping * strength * gains
        for name in ("effort_limit_sim", "effort_limit"):
            if getattr(legs, name, None) is not None:
                setattr(legs, name, getattr(legs, name) * strength)

    return change


def in_python(change=lambda cfg: None):
    def changed(cfg):
        from isaaclab.actuators import IdealPDActuatorCfg

        limits = {"effort_limit": 8.0, "stiffness": 60.0, "damping": 2.0}
        cfg.scene.robot.actuators = {"legs": IdealPDActuatorCfg(joint_names_expr=[".*"], **limits)}
        change(cfg)

    return changed


@pytest.fixture(scope="module")
def varied():
    return steps_of(factors=FACTORS)


def test_an_environment_without_a_disturbance_has_the_bits_of_the_task(varied):
    plain = steps_of()
    assert torch.equal(varied[:, 0], plain[:, 0])
    assert all(not torch.equal(varied[:, k], plain[:, k]) for k in range(1, COUNT))


@pytest.mark.parametrize("k, change", [(1, set_friction), (4, scaled(0.5, 1.0)), (5, scaled(1.0, 2.0))])
def test_a_disturbed_robot_moves_as_that_of_a_task_with_these_properties(varied, k, change):
    assert torch.equal(varied[:, k], steps_of(change)[:, k])


@pytest.mark.parametrize("k, old, new", [(2, 'mass="4"', 'mass="8"'), (3, 'mass="4"', 'mass="4" pos="0.0625 0 0"')])
def test_a_disturbed_base_moves_as_that_of_another_file(varied, k, old, new, tmp_path, monkeypatch):
    from lab_robots import LEGGED

    assert LEGGED.count(old) == 1
    (tmp_path / "other.xml").write_text(LEGGED.replace(old, new))
    monkeypatch.setitem(find.given, "legged.usd", str(tmp_path / "other.xml"))
    torch.testing.assert_close(varied[:, k], steps_of()[:, k], rtol=1e-3, atol=1e-3)


def test_actuators_in_python_are_weaker_and_have_other_gains():
    varied = steps_of(in_python(), FACTORS, count=8)
    for k, factors in ((4, (0.5, 1.0)), (5, (1.0, 2.0))):
        other = steps_of(in_python(scaled(*factors)), count=8)
        torch.testing.assert_close(varied[:, k], other[:, k])


def test_a_slope_is_gravity_that_is_turned():
    turned = (-9.81 * math.sin(0.2), 0.0, -9.81 * math.cos(0.2))
    delta = torch.tensor(turned) - torch.tensor([0.0, 0.0, -9.81])
    nothing = {name: [x[0]] * COUNT for name, x in FACTORS.items()}
    forced = steps_of(
        factors=nothing, forces=lambda robot: robot.body_masses.view(1, -1, 1) * delta.expand(COUNT, 1, 3), count=10
    )
    other = steps_of(lambda cfg: setattr(cfg.sim, "gravity", turned), count=10)
    state = slice(-13 - 8 - 8 - 3 * 13, -3 * 13)  # observations see the slope
    torch.testing.assert_close(forced[..., state], other[..., state], rtol=1e-3, atol=1e-3)


def observed(env, asked=0.3):
    """Take a step and observe it."""
    with torch.no_grad():
        env.advance(torch.full_like(env.actions, asked))
        env.step_count += 1
        env.begin_episodes(torch.zeros(env.num_envs, dtype=torch.bool))
        return env.observe()


def test_sensors_err_where_the_task_observes_and_nothing_else_notices(walk):
    env = disturbed(*walk, SMALL, noise=0.5)
    with torch.no_grad():
        env.begin_all(EVALUATION_STEP)
    obs = observed(env)
    data = env.task.world.scene["robot"].data
    states = {name: getattr(data, name) for name in ("joint_pos", "joint_vel", "root_pos_w", "root_lin_vel_b")}
    block = env.task.blocks[0]
    widths = block.dialect.observation_widths(block.observations.managers[0][0])["policy"]
    twins = obs[: SMALL.episodes].repeat(1 + SMALL.draws, 1)  # with the task's own noise
    errors = dict(zip(widths, (obs - twins)[:, : sum(widths.values())].abs().split([*widths.values()], dim=1)))
    sizes = {"gravity": 0.06, "spin": 0.2 * 0.2 + 0.2 * 0.06, "joint_pos": 0.01}
    for name, error in errors.items():
        most = 0.5 * sizes.get(name, 0.0)
        assert bool((error <= 1.05 * most + 1e-6).all()), name
        assert most == 0.0 or bool((error[SMALL.episodes :].amax(dim=1) > 0.1 * most).all()), name
    for name, x in states.items():
        assert torch.equal(x, x[: SMALL.episodes].repeat(1 + SMALL.draws, 1)), name


def test_a_class_of_its_own_observes_what_sensors_measure_and_the_actions_as_they_were_asked():
    env = disturbed(*groups_of(DIRECT + "Plain-v0", OWN, ["a"]), SMALL, noise=0.5, delay=20.0)
    with torch.no_grad():
        env.begin_all(EVALUATION_STEP)
    observed(env)
    with pytest.raises(ZeroDivisionError), env.robot.observing():
        _ = 1 / 0  # everything is restored, as below
    own, state, late = env.task.env, env.task.state, slice(SMALL.episodes, None)
    assert bool((state["obs_buf"][:, 19:27] == 0.3).all()) and not bool(own.actions[late].any())
    error = (state["critic_buf"][:, 2] - own.up).abs()  # of a number that the class keeps
    assert bool((error[late] > 1e-5).all()) and not bool(error[: SMALL.episodes].any())
    assert torch.equal(own.up, own.robot.data.projected_gravity_b[:, 2])
    own._compute_intermediate_values = lambda dt: None  # as Isaac Lab's Factory
    robot = env.task.robot()
    robot.measure({name: torch.ones(env.num_envs, width) for name, width in robot.sensors.items()}, own.actions)
    shown = own.robot.data.joint_pos.clone()
    with robot.observing():
        assert bool((own.robot.data.joint_pos != shown).all())
    assert sum("_compute_intermediate_values needs arguments" in note for note in robot.notes) == 1


def sensing(cfg):
    from isaaclab.sensors import ImuCfg, RayCasterCfg, patterns

    pattern, robot = patterns.GridPatternCfg(resolution=0.2, size=(0.4, 0.2)), "{ENV_REGEX_NS}/Robot/base"
    cfg.scene.scanner = RayCasterCfg(prim_path=robot, pattern_cfg=pattern, mesh_prim_paths=["/World/ground"])
    cfg.scene.imu = ImuCfg(prim_path=robot)


def test_rays_and_imus_err_and_restore_what_they_have_measured():
    task = driven(sensing).task
    robot, imu, scanner = task.robot(), task.world.scene["imu"].data, task.world.scene["scanner"].data
    assert robot.sensors["measured_heights"] == scanner.ray_hits_w.shape[1] == 6
    read = {
        "up": lambda: imu.projected_gravity_b,
        "spin": lambda: imu.ang_vel_b,
        "speed": lambda: imu.lin_vel_b,
        "quat": lambda: imu.quat_w,
        "hits": lambda: scanner.ray_hits_w,
    }
    before = {name: x().clone() for name, x in read.items()}
    by_env = torch.linspace(0.0, 0.05, COUNT).unsqueeze(1)  # the first environment has no noise
    robot.measure({name: by_env.expand(COUNT, width) for name, width in robot.sensors.items()}, torch.zeros(COUNT, 8))
    with robot.erring():
        during = {name: x().clone() for name, x in read.items()}
    for name, x in read.items():
        assert torch.equal(x(), before[name]) and torch.equal(during[name][0], before[name][0]), name
    torch.testing.assert_close(during["hits"][..., 2] - before["hits"][..., 2], by_env.expand(COUNT, 6))
    for name in ("spin", "speed"):
        torch.testing.assert_close(during[name] - before[name], by_env.expand(COUNT, 3))
    turned = quat_rotate_inverse(during["quat"].roll(-1, dims=1), torch.tensor([[0.0, 0.0, -1.0]]).expand(COUNT, 3))
    expected = torch.where(by_env > 0.0, turned, before["up"])
    torch.testing.assert_close(during["up"], expected, rtol=0.0, atol=5e-3)
    assert bool(((during["up"] - before["up"]).norm(dim=1)[1:] > 0.005).all())


def test_late_actions_are_observed_as_they_were_asked_and_rewards_compare_those_that_were_applied(walk):
    env = disturbed(*walk, SMALL, delay=20.0)
    with torch.no_grad():
        env.begin_all(EVALUATION_STEP)
    obs, manager = observed(env, 0.3), env.task.world.action_manager
    assert bool((obs[:, -8:] == 0.3).all())
    env.advance(torch.full_like(env.actions, 0.5))
    before = manager.prev_action
    assert bool((before[: SMALL.episodes] == 0.3).all()) and not bool(before[SMALL.episodes :].any())


def test_the_tasks_own_events_go_on_with_the_draws_on_top(walk):
    env = disturbed(*walk, SMALL, mass=1.5, gains=0.5)
    with torch.no_grad():
        env.begin_all(EVALUATION_STEP)
    observed(env)
    task, robot = env.task, env.robot
    physics, base = task.world.sim.running, robot._ids[robot.base]
    properties, own = physics.engine._properties, task.world.scene["robot"]
    mass, stiffness = torch.tensor(properties.mass[:, base]), torch.tensor(properties.stiffness[:, robot._view.columns])
    factors = {"mass": torch.tensor([1.0, 1.5]), "gains": torch.tensor([1.0, 0.5])}
    by_draw = {name: x.repeat_interleave(torch.tensor([2, 6])) for name, x in factors.items()}
    masses = own.root_physx_view.get_masses()[:, 0]
    assert len({*masses.tolist()}) == SMALL.episodes  # the event has drawn
    torch.testing.assert_close(mass.float(), masses * by_draw["mass"])
    drawn = own.actuators["legs"].stiffness
    assert len({*drawn[:, 0].tolist()}) == SMALL.episodes
    torch.testing.assert_close(stiffness.float(), drawn * by_draw["gains"].unsqueeze(1))


def test_commands_are_followed_by_all_lanes(walk, monkeypatch):
    spec, groups = walk
    seen = []

    def act(env):
        def noting(obs):
            seen.append(env.task.world.commands.get_command("base_velocity").clone())
            return 0.0 * env.actions

        return noting

    monkeypatch.setattr("envcoder_bench.stress.commands.SECONDS", 0.1)
    rows, reason = probe_commands(spec, groups, act)
    assert [row.axis for row in rows] == ["x", "y", "yaw"] * 2 and not reason
    assert all(torch.equal(x, seen[0]) for x in seen) and seen[0].shape == (2 * 28, 3)
    assert seen[0].amax(dim=0).tolist() == [1.0, 0.5, 1.0] and not bool(seen[0][:4].any())


def test_a_fixed_robot_has_columns_for_what_it_has():
    spec, groups = groups_of(CART, TEXT, ["a"])
    stress = stress_of(spec, groups, {"a": lambda obs: obs[:, :1]}, replace(SMALL, draws=1, milliseconds=50))
    assert {"foot_slip", "foot_impact", "cost_of_transport"} <= {*stress.settings.absent}
    assert any("heaviest body, cart" in note for note in stress.settings.notes)


def test_a_scene_without_actuators_has_no_robot():
    from envcoder_bench.sources.isaaclab_tasks.robot import _robot

    with pytest.raises(UserError, match="no articulation of the task has actuators"):
        _robot({})
