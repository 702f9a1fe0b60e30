"""With mjlab itself: its robots meet the disturbances of the stress grid."""

from dataclasses import replace

import pytest
import torch
from driven import CARTPOLE, G1, GO1, ROUGH_GO1
from scripted_policies import Script, disturbed, groups_of, stress_of

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.results.stress import Settings
from envcoder_bench.run.prepare.environments import build_env, build_task
from envcoder_bench.sim.base import Variation
from envcoder_bench.stress import episodes
from envcoder_bench.stress.commands import probe_commands
from envcoder_bench.stress.disturbed_env import DisturbedEnv
from envcoder_bench.stress.episodes import acting
from envcoder_bench.tasks.base import EnvGroups
from envcoder_bench.tasks.spec import Can

pytest.importorskip("mjlab")
from envcoder_bench.sources.mjlab_tasks.robot import robot_name
from envcoder_bench.sources.mjlab_tasks.spec import facts_of, mjlab_spec
from envcoder_bench.sources.mjlab_tasks.task import has_contacts

pytestmark = pytest.mark.slow  # constructing a scene takes a second

TEXT = "rewards = {}\n"
SMALL = Settings(1, draws=3, episodes=2, milliseconds=200)


def nods(share):
    return lambda obs: share * torch.tanh(obs[:, :1]).expand(-1, 29)


POLICIES = {"stands": nods(0.0), "nods": nods(0.5)}


@pytest.fixture(scope="module")
def g1():
    return groups_of(f"mjlab:{G1}", TEXT, list(POLICIES))


def test_stress_is_the_same_alone_and_among_others_and_without_disturbances_the_evaluation(g1):
    spec, groups = g1
    stress = stress_of(spec, groups, POLICIES, SMALL)
    _, alone = groups_of(f"mjlab:{G1}", TEXT, ["nods"])
    rows = stress_of(spec, alone, POLICIES, SMALL).rows
    assert str(rows) == str(tuple(row for row in stress.rows if row.candidate == "nods"))  # some columns are NaN
    assert len({row.fitness for row in stress.rows}) == len(stress.rows)
    assert [*stress.settings.absent] == ["velocity_saturation"] and not stress.settings.notes
    assert all(0.0 < row.motion["foot_slip"] < 0.2 for row in stress.rows)
    env = build_env(spec, [group.evaluation for group in groups], [spec.config.seed] * 2, SMALL.episodes)
    with torch.no_grad():
        act = acting(env, [Script(POLICIES[group.name]) for group in groups])
        played = run_episodes(env, act, 1, EVALUATION_STEP, steps=round(0.2 / env.task.dt))
    nominal = [row.fitness for row in stress.rows if row.draw == 0]
    assert nominal == played.fitness.double().mean(dim=1).tolist()
    assert env.task.unmeasured(0) == {"the base's linear velocity"}


def test_a_simulation_without_the_episodes_that_have_ended_plays_the_others_as_before(monkeypatch):
    """Each tensor of mjlab's state is divided by environment."""
    legs = torch.tensor([2.0, -2.0]).repeat_interleave(6)
    scripts = {"falls": lambda obs: legs.expand(len(obs), -1)}
    settings = Settings(1, draws=7, episodes=1, milliseconds=1200)
    monkeypatch.setattr(Script, "forward", lambda self, obs: self.controller(obs))  # beyond the clips

    def rows():
        return str(stress_of(*groups_of(f"mjlab:{GO1}", TEXT, list(scripts)), scripts, settings).rows)

    whole, seen = rows(), []
    take_over = DisturbedEnv.take_over

    def noted(self, other, groups, kept):
        take_over(self, other, groups, kept)
        seen.append((self.num_envs, torch.equal(self.observe(), other.observe()[kept])))

    monkeypatch.setattr(DisturbedEnv, "take_over", noted)
    for name, value in (("LOOK", 5), ("SHARE", 1.0), ("WORTH", {"cpu": 0}), ("_may_narrow", lambda env: True)):
        monkeypatch.setattr(episodes, name, value)
    assert rows() == whole
    assert seen and all(equal and size < 8 for size, equal in seen)


def test_sensors_err_and_late_actions_are_observed_as_they_were_asked(g1):
    env = disturbed(*g1, SMALL, noise=0.5, delay=20.0)
    task = env.task
    with torch.no_grad():
        obs = env.begin_all(EVALUATION_STEP)
        block = task.blocks[0]
        names = block.dialect.observation_widths(block.observations.managers[0][0])["actor"]
        sizes = {"base_lin_vel": 0.1, "base_ang_vel": 0.2, "projected_gravity": 0.06}
        sizes |= {"joint_pos": 0.01, "joint_vel": 1.5}
        twins = obs[: SMALL.episodes].repeat(1 + SMALL.draws, 1)  # with the task's own noise
        errors = dict(zip(names, (obs - twins)[:, : sum(names.values())].abs().split([*names.values()], dim=1)))
        for name, error in errors.items():
            most = 0.5 * sizes.get(name, 0.0)
            assert bool((error <= 1.05 * most + 1e-6).all()), name
            assert most == 0.0 or bool((error[SMALL.episodes :].amax(dim=1) > 0.1 * most).all()), name
        assert bool((task.world.sim.data.qpos[:] == task.world.sim.data.qpos[:2].repeat(4, 1)).all())  # not lived
        # an action that comes late
        asked = torch.full_like(env.actions, 0.1)
        data = task.world.scene["robot"].data
        none = torch.zeros(env.num_envs, dtype=torch.bool)
        env.advance(asked)
        env.step_count += 1
        env.begin_episodes(none)
        obs = env.observe()
    moved = (data.joint_pos_target - (data.default_joint_pos - data.encoder_bias)).abs() > 1e-4
    assert bool(moved[: SMALL.episodes].all()) and not bool(moved[SMALL.episodes :].any())
    actions = dict(zip(names, obs[:, : sum(names.values())].split([*names.values()], dim=1)))["actions"]
    assert torch.equal(actions, asked)
    # rewards compare the actions that were applied
    env.advance(torch.full_like(asked, 0.3))
    before = task.world.action_manager.prev_action
    assert torch.equal(before[: SMALL.episodes], asked[: SMALL.episodes]) and not bool(before[SMALL.episodes :].any())


def test_commands_are_followed_by_all_lanes(g1):
    spec, groups = g1
    seen = []

    def act(env):
        policy = acting(env, [Script(POLICIES[group.name]) for group in groups])

        def noting(obs):
            seen.append(env.task.world.commands.get_command("twist").clone())
            return policy(obs)

        return noting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("envcoder_bench.stress.commands.SECONDS", 0.1)
        rows, reason = probe_commands(spec, groups, act)
    assert [row.axis for row in rows] == ["x", "y", "yaw"] * 2 and not reason
    assert all(torch.equal(x, seen[0]) for x in seen) and seen[0].shape == (2 * 28, 3)
    assert seen[0].amax(dim=0).tolist() == [1.0, 1.0, 0.5] and not bool(seen[0][:4].any())


@pytest.mark.parametrize("backend", ["mujoco", "warp"])
def test_models_differ_by_the_factors(backend):
    """On top of what the task's own events have drawn."""
    spec, _ = groups_of(f"mjlab:{GO1}", TEXT, ["a"], (f"task.sim.backend={backend}",))
    task = build_task(spec, 3)
    groups = EnvGroups.alone(3, torch.zeros(3, 12))
    task.attach(groups)
    model = task.world.sim.model
    names = ("geom_friction", "body_mass", "body_ipos", "actuator_gainprm", "actuator_biasprm", "actuator_forcerange")
    before = {name: getattr(model, name).clone() for name in names}
    robot = task.robot()
    friction, mass = torch.tensor([torch.nan, 0.5, 0.9]), torch.tensor([1.0, 1.2, 0.8])
    com, strength, gains = torch.tensor([[0.0, 0.03, -0.02], [1.0, 0.7, 1.1], [1.0, 1.2, 0.9]])
    robot.vary(Variation(friction, mass, com, strength, gains))
    after = {name: getattr(model, name) for name in names}
    assert all(torch.equal(after[name][0], before[name][0]) for name in names)
    assert bool((after["geom_friction"][1:, :, 0] == friction[1:, None]).all())
    base = task.world.scene["robot"].indexing.root_body_id
    assert torch.allclose(after["body_mass"][:, base], before["body_mass"][:, base] * mass)
    assert torch.allclose(after["body_ipos"][:, base, 0], before["body_ipos"][:, base, 0] + com)
    for name, factor in (("gainprm", strength * gains), ("biasprm", strength * gains), ("forcerange", strength)):
        old = before[f"actuator_{name}"]
        assert torch.allclose(after[f"actuator_{name}"], old * factor.view(3, 1, 1), rtol=1e-5), name
    limits = dict(zip(task.world.scene["robot"].joint_names, robot.effort_limits.tolist()))
    assert limits == pytest.approx({joint: 35.55 if "calf" in joint else 23.7 for joint in limits})
    assert [robot.body_names[k] for k in robot.feet] == ["FR_calf", "FL_calf", "RR_calf", "RL_calf"]


def test_a_slope_and_pushes_move_the_cart():
    spec, groups = groups_of(f"mjlab:{CARTPOLE}", TEXT, ["a"])
    slope = disturbed(spec, groups, SMALL, slope=0.1)
    push = disturbed(spec, groups, SMALL, push=0.5)
    moved = {}
    for name, env in (("slope", slope), ("push", push)):
        with torch.no_grad():
            env.begin_all(EVALUATION_STEP)
            if name == "push":
                env._push_every = 2 * env._push_steps  # it begins with the next step but some
            for _ in range(2 * env._push_steps if name == "push" else 1):
                env.advance(torch.zeros_like(env.actions))
                env.step_count += 1
        moved[name] = env.robot.dof_vel[:, 0] - env.robot.dof_vel[: SMALL.episodes, 0].repeat(1 + SMALL.draws)
        assert not bool(env.task.world.sim.data.xfrc_applied[:].any())  # forces of this step alone
    fallen = moved["slope"][SMALL.episodes :] / (-9.81 * 0.0998 * slope.task.dt)
    assert bool(((fallen > 0.8) & (fallen < 1.3)).all()), fallen
    assert not bool(moved["slope"][: SMALL.episodes].any())
    assert bool((moved["push"][SMALL.episodes :].abs() > 0.01).all()) and bool((moved["push"].abs() < 0.8).all())


def test_noise_of_rays_is_observed_alone():
    """Rewards and ends of the next step read where rays hit without noise."""
    env = disturbed(*groups_of(f"mjlab:{ROUGH_GO1}", TEXT, ["a"]), SMALL, noise=1.0)
    env.begin_all(EVALUATION_STEP)
    sensor = next(x for x in env.task.world.scene.sensors.values() if hasattr(x, "_ray_dist"))
    hits, distances = sensor.data.hit_pos_w.clone(), sensor.data.distances.clone()
    env.task.world.sensed()
    assert torch.equal(sensor.data.hit_pos_w, hits) and torch.equal(sensor.data.distances, distances)
    with env.robot.erring():
        env.task.world.sensed()
        assert not torch.equal(sensor.data.hit_pos_w, hits)
    assert torch.equal(sensor.data.hit_pos_w, hits) and torch.equal(sensor.data.distances, distances)


def test_tasks_run_in_both_backends_unless_mjlab_or_their_code_allows_only_one(monkeypatch):
    task = f"mjlab:{CARTPOLE}"
    mjlab_spec.cache_clear()
    assert Can.BOTH_BACKENDS in mjlab_spec(task).can
    facts = facts_of(task)
    with monkeypatch.context() as patch:
        patch.setattr("envcoder_bench.sources.mjlab_tasks.spec.facts_of", lambda _: replace(facts, needs_warp=True))
        mjlab_spec.cache_clear()
        assert Can.BOTH_BACKENDS not in mjlab_spec(task).can
    monkeypatch.setattr("mjlab.sim.sim.SimulationCfg.ls_parallel", True, raising=False)
    mjlab_spec.cache_clear()
    assert Can.BOTH_BACKENDS not in mjlab_spec(task).can
    mjlab_spec.cache_clear()


@pytest.mark.parametrize("contacts", ["no", 1])
def test_a_switch_that_is_not_a_bool_is_refused(contacts):
    with pytest.raises(UserError, match=r"task\.sim\.contacts is"):
        has_contacts({"sim": {"contacts": contacts}})


def test_a_task_without_actuators_has_no_robot():
    with pytest.raises(UserError, match="no entity of the task has actuators"):
        robot_name({"cube": None})
