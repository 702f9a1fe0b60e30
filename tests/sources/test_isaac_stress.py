"""Robots of Isaac Gym tasks meet the disturbances of the stress grid."""

import pytest
import torch
import yaml
from isaac_helpers import FOLDER, PENDULUM
from scripted_policies import Script, disturbed, groups_of, stress_of

from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.results.stress import Settings
from envcoder_bench.run.prepare.environments import build_env, build_task
from envcoder_bench.sim.base import Variation
from envcoder_bench.stress.episodes import acting

TEXT = """
def compute_observation(obs_buf, dof_vel):
    return torch.cat([obs_buf, dof_vel], dim=1)
"""
SMALL = Settings(1, draws=2, episodes=1, milliseconds=100)
POLICIES = {"swings": lambda obs: torch.sin(9.0 * obs[:, 2:3]), "holds": lambda obs: -0.3 * obs[:, 2:3]}


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """Settings with a fitness."""
    file = tmp_path_factory.mktemp("fitness") / "upright.py"
    file.write_text('def compute_fitness(dof_pos):\n    """Upright."""\n    return torch.cos(dof_pos[:, 0])\n')
    return (f"fitness={file}",)


def test_isaac_stress_is_the_same_alone_and_among_others_and_without_disturbances_the_evaluation(scored):
    spec, groups = groups_of(PENDULUM, TEXT, list(POLICIES), scored)
    stress = stress_of(spec, groups, POLICIES, SMALL)
    _, alone = groups_of(PENDULUM, TEXT, ["swings"], scored)
    rows = stress_of(spec, alone, POLICIES, SMALL).rows
    assert str(rows) == str(tuple(row for row in stress.rows if row.candidate == "swings"))
    assert len({row.fitness for row in stress.rows}) == len(stress.rows)
    assert {"foot_slip", "cost_of_transport"} < {*stress.settings.absent} and len(stress.settings.notes) == 3
    env = build_env(spec, [group.evaluation for group in groups], [spec.config.seed] * 2, SMALL.episodes)
    with torch.no_grad():
        act = acting(env, [Script(POLICIES[group.name]) for group in groups])
        played = run_episodes(env, act, 1, EVALUATION_STEP, steps=round(0.1 / env.task.dt))
    nominal = [row.fitness for row in stress.rows if row.draw == 0]
    assert nominal == played.fitness.double().mean(dim=1).tolist()


def observed(env, action=0.4):
    """Begin episodes and take a step; return the observations after it."""
    with torch.no_grad():
        env.begin_all(EVALUATION_STEP)
        env.advance(torch.full_like(env.actions, action))
        env.step_count += 1
        env.begin_episodes(torch.zeros(env.num_envs, dtype=torch.bool))
        return env.observe()


def test_isaac_sensors_err_where_the_task_observes_and_nothing_else_notices(scored):
    env = disturbed(*groups_of(PENDULUM, TEXT, ["a"], scored), SMALL, noise=0.5)
    obs = observed(env)
    twins = obs[: SMALL.episodes].repeat(1 + SMALL.draws, 1)
    error = (obs - twins).abs()[SMALL.episodes :]
    for column, size in ((2, 0.005), (4, 0.75)):  # the task's own observation of the angle, and the state's velocity
        assert 0.05 * size < float(error[:, column].max()) <= 1.01 * size
    assert torch.equal(env.task.isaac.dof_pos, env.task.isaac.dof_pos[:1].repeat(3, 1))
    assert not bool((obs - twins)[: SMALL.episodes].any())
    env.task.finish_step()
    assert torch.equal(env.state["dof_pos"], env.task.isaac.dof_pos)


def test_isaac_motors_are_weaker_and_late_and_what_was_asked_is_observed(scored, monkeypatch):
    seen = []
    env = disturbed(*groups_of(PENDULUM, TEXT, ["a"], scored), SMALL, strength=0.5)
    observed(env)
    force = env.robot.dof_force[:, 0]
    assert bool((force[SMALL.episodes :] == 0.5 * force[: SMALL.episodes].repeat(2)).all()) and bool(
        (force > 0.0).all()
    )
    env = disturbed(*groups_of(PENDULUM, TEXT, ["a"], scored), SMALL, delay=40.0)
    isaac = env.task.isaac
    observe = type(isaac).compute_observations
    monkeypatch.setattr(
        type(isaac), "compute_observations", lambda self: (seen.append(self.actions.clone()), observe(self))
    )
    env = disturbed(*groups_of(PENDULUM, TEXT, ["a"], scored), SMALL, delay=40.0)
    observed(env)
    assert bool((seen[-1] == 0.4).all()) and bool((env.task.isaac.actions[SMALL.episodes :] == 0.0).all())
    assert bool((env.robot.dof_force[SMALL.episodes :, 0].abs() < 1e-6).all())


def test_isaac_drives_masses_and_forces_differ_by_the_draw(scored):
    spec, groups = groups_of(PENDULUM, TEXT, ["a"], ("task.env.drive=position", *scored))
    first = {}
    for name, value in {"gains": 0.5, "strength": 0.5, "mass": 1.3, "com": 0.05, "slope": 0.2, "push": 1.0}.items():
        env = disturbed(spec, groups, SMALL, **{name: value})
        env._push_every = 1
        env._push_steps = 2
        observed(env)
        speed = env.robot.dof_vel[:, 0]
        assert bool((speed[SMALL.episodes :] != speed[: SMALL.episodes].repeat(2)).all()), name
        first[name] = speed[: SMALL.episodes]
    assert all(torch.equal(x, first["gains"]) for x in first.values())  # the nominal draw is always the same


def test_gains_in_python_differ_in_both_shapes_and_others_are_told(scored):
    spec, _ = groups_of(PENDULUM, TEXT, ["a"], scored)
    task = build_task(spec, 3)
    robot, isaac = task.robot(), task.isaac
    dofs, ones = task.num_dofs, torch.ones(3)
    gains = torch.tensor([1.0, 0.5, 1.2])
    good, bad = [(dofs,), (1, dofs), (3, dofs)], [(2, dofs), (3, dofs + 7), (3, 1, dofs)]
    for shape, scaled in [*((x, True) for x in good), *((x, False) for x in bad)]:
        isaac.p_gains, isaac.d_gains = torch.full(shape, 10.0), torch.full((3, dofs), 2.0)
        robot.notes.clear()
        robot.vary(Variation(ones * torch.nan, ones, ones * 0.0, ones, gains))
        expected = 10.0 * gains.unsqueeze(1).expand(3, dofs) if scaled else torch.full(shape, 10.0)
        assert torch.equal(isaac.p_gains, expected) and torch.equal(isaac.d_gains[:, 0], 2.0 * gains), shape
        assert scaled == (not robot.notes) and all(str(shape) in note for note in robot.notes)


def test_disturbances_stay_where_episodes_begin_with_random_properties(scored, tmp_path):
    scaling = {"range": [0.8, 0.9], "operation": "scaling", "distribution": "uniform"}
    kinds = {"rigid_body_properties": {"mass": scaling}, "dof_properties": {"stiffness": scaling}}
    config = yaml.safe_load((FOLDER / "pendulum.yaml").read_text())
    config["env"]["drive"] = "position"
    random = {"frequency": 1, "actor_params": {"pendulum": kinds}}
    config["task"] = {"randomize": True, "randomization_params": random}
    file = tmp_path / "random.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    task = f"{PENDULUM.split('@')[0]}@{file}"
    env = disturbed(*groups_of(task, TEXT, ["a"], scored), SMALL, mass=1.5, gains=0.5, com=0.05)
    env.begin_all(EVALUATION_STEP)
    base, properties = env.robot._ids[env.robot.base], env.task.isaac.sim.engine._properties
    mass, stiffness, com = properties.mass[:, base], properties.stiffness[:, 0], properties.ipos[:, base, 0]
    assert 0.8 < mass[0] / float(env.robot.body_masses[env.robot.base]) < 0.9
    assert mass[1:] / mass[0] == pytest.approx(1.5) and stiffness[1:] / stiffness[0] == pytest.approx(0.5)
    assert com[1:] - com[0] == pytest.approx(0.05)


def test_commands_of_a_legged_task_are_followed(scored, monkeypatch):
    monkeypatch.setenv("LEGGED_GYM_PATH", str(FOLDER / "checkout"))
    spec, groups = groups_of(
        "legged_gym:walker", "def compute_observation(state_dict):\n    return state_dict['commands']\n", ["a"], scored
    )
    env = build_env(spec, [groups[0].evaluation], [0], 2)
    task = env.task
    assert task.velocity_ranges() == {}
    task.isaac.command_ranges = {"lin_vel_x": [-1.0, 0.5], "lin_vel_y": [0.0, 0.0], "ang_vel_yaw": [-1, 1]}
    assert task.velocity_ranges() == {"x": 1.0, "yaw": 1.0}
    asked = torch.tensor([[0.5, 0.0, 0.1], [1.0, 0.0, 0.2]])
    task.command(asked)
    assert torch.equal(observed(env), asked)
