"""Tasks of Isaac Gym code as tasks of the registry, on a pendulum in the style of IsaacGymEnvs."""

import re
from pathlib import Path

import pytest
import torch
from isaac_helpers import FOLDER, PENDULUM, SETTINGS, begun, config, environment, groups, human_env, played

from envcoder_bench.cli import console
from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.core.errors import UserError
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.fitness import read_fitness
from envcoder_bench.run.prepare.environments import at_half_step, build_task
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.isaacgym_tasks import driver
from envcoder_bench.sources.isaacgym_tasks.importing import one_line
from envcoder_bench.sources.isaacgym_tasks.source import read_yaml
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.contract import task_contract
from envcoder_bench.tasks.spec import Can
from envcoder_bench.tools.describe import describe
from envcoder_bench.tools.isolation import measure_isolation
from envcoder_bench.tools.task_check import TaskCheck
from isaacgym_mujoco.api import gymtorch
from mujoco_batches.torch_utils import quat_rotate

CALM = "def compute_reward(dof_pos):\n    return -dof_pos[:, 0].abs()\n"
COUPLED = f"{FOLDER}/pendulum.py:Coupled"


def test_state_has_the_named_tensors_of_the_task():
    task = build_task(RunSpec.of(config()), 3)
    assert tuple(task.state["dof_pos"].shape) == (3, 1) and tuple(task.state["obs_buf"].shape) == (3, 4)
    assert tuple(task.state["last_angle"].shape) == (3,)
    assert float(task.constants["max_effort"]) == 5.0 and task.constants["weights"].tolist() == pytest.approx(
        [1.0, 0.1]
    )
    assert "commands" in task.goal_keys
    assert re.fullmatch(r"from pendulum\.py:\d+: `self\.last_angle = .*`", task.fields["last_angle"].meaning)
    assert re.fullmatch(r"from pendulum\.py:\d+", task.fields["max_effort"].meaning)
    assert all(x[0].is_contiguous() for x in task.state.values())
    assert "last_angle" in describe(PENDULUM)


def test_axes_masses_and_gains_are_those_of_the_simulation():
    spec, cfg = find_spec(PENDULUM), dict(config().task)
    cfg["env"] = {**cfg["env"], "drive": "position", "ball": True}
    task, facts = spec.make(cfg, 2, "mujoco_cpu", "cpu"), task_contract(spec, cfg)
    assert facts.joint_facts == {"hinge": "turns about +y, positive moves rod towards +x, 0.5 m/rad"}
    assert facts.masses[:2] == (0.0, 1.0) and facts.masses[2] > 0  # the base is fixed, the ball is not
    assert facts.drives == {"stiffness": [40.0], "damping": [2.0]}
    # a higher target in the first environment moves the rod's centre of mass, 0.5 m from the hinge, towards +x
    gym, sim = task.isaac.gym, task.isaac.sim
    task.prepare_reset(torch.ones(2, dtype=torch.bool))
    states = {"dof_pos": torch.zeros(2, 1), "dof_vel": torch.zeros(2, 1)}
    task.scene.write(torch.ones(2, dtype=torch.bool), {**task.default_state, **states})
    task.isaac.pre_physics_step(torch.tensor([[0.01], [-0.01]]))
    gym.simulate(sim)
    bodies = gymtorch.wrap_tensor(gym.acquire_rigid_body_state_tensor(sim))
    gym.refresh_rigid_body_state_tensor(sim)
    pose = bodies.view(2, -1, 13)[:, 1]
    centre = pose[:, :3] + quat_rotate(pose[:, 3:7], torch.tensor([[0.0, 0.0, 0.5]]).repeat(2, 1))
    assert centre[0, 0] > 0 > centre[1, 0] and centre[0, 1].abs() < 1e-9
    # the rod's inertia about the hinge is 0.1 + 1 * 0.5 ** 2
    speed = gymtorch.wrap_tensor(gym.acquire_dof_state_tensor(sim))[:, 1]
    gym.refresh_dof_state_tensor(sim)
    assert float(speed[0]) == pytest.approx(40.0 * 0.01 * 0.02 / 0.35, rel=0.15)  # less by the damping


@pytest.mark.slow
def test_a_reward_that_requires_a_gradient_keeps_no_graph_of_all_steps():
    env = begun(f"{FOLDER}/pendulum.py:Differentiable")
    assert all(torch.isfinite(step.reward).all() for step in played(env, 3))
    assert env.task.isaac.rew_buf.grad_fn is None


def test_human_baseline_returns_observation_and_reward_of_the_task():
    env = human_env()
    obs = env.reset()
    angle, goal = env.task.state["dof_pos"][:, 0], env.task.state["commands"][:, 0]
    for step in played(env, 5):
        torch.testing.assert_close(obs[:, :2], torch.stack((torch.sin(obs[:, 2]), torch.cos(obs[:, 2])), dim=1))
        expected = torch.cos(angle - goal) - 0.1 * env.actions[:, 0] ** 2
        torch.testing.assert_close(step.reward, expected)
        assert torch.equal(step.obs[:, 2], angle)
        obs = step.obs


def test_time_limit_truncates_and_the_tasks_reset_terminates():
    env = begun()
    steps = list(played(env, 59))
    assert not any(bool(step.terminated.any()) for step in steps)
    assert [k for k, step in enumerate(steps) if bool(step.truncated.all())] == [58]  # episodeLength - 1 steps
    env.task.isaac.dof_vel[1] = 11.0  # the task ends the episode where the rod is fast
    env.task.scene._gym.set_dof_state_tensor(env.task.isaac.sim, env.task.isaac.dof_state)
    (step,) = played(env, 1)
    assert step.terminated.tolist() == [False, True, False, False]


def test_half_the_physics_step_keeps_the_control_step():
    cfg = config()
    spec = RunSpec.of(cfg)
    assert Can.HALF_STEP in spec.task.can
    tasks = [build_task(each, 2) for each in (spec, at_half_step(spec))]
    assert tasks[1].substeps == 2 * tasks[0].substeps and tasks[1].dt == tasks[0].dt  # pyright: ignore
    models = [task.pose_source().model for task in tasks]
    assert models[1].opt.timestep == pytest.approx(0.5 * models[0].opt.timestep)


def test_reassigned_tensors_keep_their_address_in_the_state():
    env = begun()
    place = env.state["obs_buf"].data_ptr()
    last = env.state["obs_buf"].clone()
    (step,) = played(env, 1)
    assert env.state["obs_buf"].data_ptr() == place
    assert torch.equal(env.state["last_angle"], last[:, 2])
    assert torch.equal(env.state["obs_buf"], step.obs)


def test_reset_leaves_other_environments_unchanged():
    env = begun()
    list(played(env, 3))
    before = {key: x.clone() for key, x in env.task.state.items()}
    mask = torch.tensor([True, False, False, True])
    env.begin_episodes(mask)
    for key, x in env.task.state.items():
        assert torch.equal(x[~mask], before[key][~mask]), key
    assert not torch.equal(env.task.state["commands"][mask], before["commands"][mask])
    assert env.task.state["last_angle"][mask].abs().max() < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("mixes, together", [(1000, True), (0, False)])
def test_one_reset_for_all_groups_has_the_bits_of_a_reset_for_each(mixes, together, monkeypatch):
    def results(watched):
        monkeypatch.setattr(driver, "_WATCHED", watched)
        cfg = config(f"{FOLDER}/pendulum.py:Spun", "task.env.episodeLength=5")
        made = groups(cfg, a=CALM, b=CALM)[0]
        env = environment(cfg, made, seeds=[3, 3, 4])
        env.task.isaac.mixes = mixes
        env.reset()
        calls = [env.task._resets._watched]
        steps = [torch.cat([step.obs, step.reward.unsqueeze(1)], dim=1) for step in played(env, 16)]
        calls.append(env.task._resets._watched)
        assert env.task._resets._rows_alone == (together and watched < 100)
        return torch.stack(steps), calls[1] - calls[0]

    (alone, calls), (batched, fewer) = results(10**9), results(1)
    assert torch.equal(alone, batched) and (fewer < calls) == together


@pytest.mark.slow
def test_candidate_trains_identically_alone_and_with_others():
    cfg = config(PENDULUM, "num_envs_per_candidate=16")
    human, other = groups(cfg, other="def compute_reward(rew_buf):\n    return -rew_buf\n")[0]
    measured = measure_isolation(RunSpec.of(cfg), human, other, steps=130, iterations=2)
    assert measured.clean and measured.episodes >= 16, str(measured)


@pytest.mark.slow
def test_draws_for_some_environments_are_independent_of_other_groups():
    cfg = config(f"{FOLDER}/pendulum.py:Pushed@{FOLDER}/pendulum.yaml", "num_envs_per_candidate=16")
    (human,) = groups(cfg)[0]
    env, alone = environment(cfg, [human] * 3, [1, 0, 0]), environment(cfg, [human])
    for own in (env, alone):
        own.reset()
        for _ in range(3):
            own.step(torch.zeros_like(own.actions))
    other, first, second = env.layout.split(env.task.isaac.push)
    assert torch.equal(first, second) and torch.equal(first, alone.task.isaac.push) and not torch.equal(first, other)
    assert 4 < int((first != 0).sum()) < 16 and not env.task._draws.shared


@pytest.mark.slow
def test_draws_for_some_rows_of_a_reset_are_independent_of_other_groups():
    cfg = config(f"{FOLDER}/pendulum.py:Apart@{FOLDER}/pendulum.yaml", "num_envs_per_candidate=16")
    (human,) = groups(cfg)[0]
    env, alone = environment(cfg, [human] * 3, [1, 0, 0]), environment(cfg, [human])
    for own in (env, alone):
        own.reset()
        own.step_count = 5
        own.begin_episodes(torch.arange(own.num_envs) % 16 < 9)
    other, first, second = env.layout.split(env.task.isaac.drawn)[:, :9]
    assert torch.equal(first, second) and torch.equal(first, alone.task.isaac.drawn[:9])
    assert not bool((first == other).any()) and bool((first >= 0.7).all()) and len(set(first.tolist())) == 9


@pytest.mark.slow
def test_task_that_mixes_environments_is_detected():
    cfg = config(COUPLED, "num_envs_per_candidate=16")
    human, other = groups(cfg, other="def compute_observation(dof_pos):\n    return dof_pos\n")[0]
    measured = measure_isolation(RunSpec.of(cfg), human, other, steps=5, iterations=1)
    assert not measured.clean and measured.rollout == 1
    assert "differs from step 1" in str(measured)


@pytest.mark.slow
def test_instances_do_not_share_class_containers():
    cfg = config(f"{FOLDER}/pendulum.py:Shared@{FOLDER}/pendulum.yaml")
    (human,) = groups(cfg)[0]
    for env in (environment(cfg, [human]), environment(cfg, [human, human])):
        env.reset()
        list(played(env, 2))
        assert torch.equal(env.task.isaac.history[0], env.task.isaac.obs_buf)
    other = environment(cfg, [human, human])
    other.set_state(env.get_state())
    assert torch.equal(other.task.isaac.history[0], env.task.isaac.history[0])
    env.task.isaac.history[0].zero_()
    assert bool(other.task.isaac.history[0].any())


@torch.jit.script
def choose(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x, x, x)


def test_torchscript_error_has_its_reason_and_script_line():
    with pytest.raises(RuntimeError) as error:
        choose(torch.zeros(2, dtype=torch.int64))
    told = one_line(error.value)
    assert f"{Path(__file__).name}:" in told and told.endswith(
        "where expected condition to be a boolean tensor, but got a tensor with dtype Long"
    )
    assert "Traceback" not in told


FITNESS = '''"""Pointing: 0 to 1"""
def compute_fitness(dof_pos, commands):
    return 0.5 + 0.5 * torch.cos(dof_pos[:, 0] - commands[:, 0])
'''


@pytest.mark.slow
def test_process_isolation_makes_results_independent_of_other_candidates(tmp_path, monkeypatch):
    """The task mixes environments; in its own wave a candidate is independent of the others in the run."""
    (tmp_path / "fitness.py").write_text(FITNESS)
    for name in ("one", "two"):
        factor = {"one": 1.0, "two": -1.0}[name]
        (tmp_path / f"{name}.py").write_text(f"def compute_reward(rew_buf):\n    return {factor} * rew_buf\n")

    monkeypatch.chdir(tmp_path)

    small = ["evaluation.points=1", "evaluation.num_envs=4", "evaluation.final_episodes=4"]
    words = [
        f"--task={COUPLED}",
        "--fitness=fitness.py",
        "--no_baselines",
        "--learning_iterations=2",
        *SETTINGS,
        *small,
    ]

    def rows(folder):
        lines = (tmp_path / folder / "results.csv").read_text().splitlines()[1:]
        return {line.split(",")[0]: line.split(",")[3] for line in lines}

    def execv(program, words):  # after each wave; here it goes on in this process
        assert words[1:3] == ["-m", "envcoder_bench.eval_shapers"]
        replaced.append(main(words[3:]))
        raise SystemExit

    replaced = []
    monkeypatch.setattr(console.os, "execv", execv)
    monkeypatch.setenv("PYTHONPATH", "")  # restored at the end
    with pytest.raises(SystemExit):
        main([*words, "--candidates", "one.py", "two.py", "--isolate", "process", "--output_dir", "both"])
    assert replaced == [0]
    assert main([*words, "--candidates", "two.py", "--output_dir", "alone"]) == 0
    assert set(rows("both")) == {"one", "two"} and rows("both")["two"] == rows("alone")["two"]


def test_task_error_in_a_step_is_reported_in_one_line():
    env = begun()
    env.task.isaac.weights = [1.0]
    with pytest.raises(UserError, match=r"pendulum.py:\d+: IndexError: list index out of range"):
        list(played(env, 1))


@pytest.mark.slow
def test_steps_that_drop_contacts_are_counted_in_their_environment():
    env = begun()
    env.task.isaac.sim.engine._dropped[1] = True
    for _ in played(env, 2):
        pass
    assert env.task.contact_overflows.tolist() == [0, 1, 0, 0]


def test_environment_resumes_bitwise_from_a_checkpoint():
    cfg = config()
    made = groups(
        cfg, mine="def compute_initial_state(dof_pos):\n    return {'dof_pos': 0.1 * torch.rand_like(dof_pos)}\n"
    )[0]
    env, other = environment(cfg, made), environment(cfg, made)
    env.reset()
    list(played(env, 50))
    other.set_state(env.get_state())
    for one, two in zip(played(env, 40, seed=1), played(other, 40, seed=1)):
        assert torch.equal(one.obs, two.obs) and torch.equal(one.reward, two.reward) and torch.equal(one.done, two.done)
    for key, x in env.state.items():
        assert torch.equal(x, other.state[key]), key


TORQUE = "ACTION_DIM = 1\ndef compute_torque(action, dof_pos):\n    return {}\n"
TARGET = "ACTION_DIM = 1\ndef compute_dof_target(action, dof_pos):\n    return 0.7 + 0.0 * dof_pos\n"


@pytest.mark.slow
def test_torque_of_a_candidate_acts_only_on_its_own_environments():
    cfg = config()
    made, faults = groups(cfg, push=TORQUE.format("3.0 + 0.0 * dof_pos"), rest=TORQUE.format("0.0 * dof_pos"))
    assert not faults
    env, alone = environment(cfg, made), environment(cfg, made[:1])
    env.reset()
    alone.reset()
    for _ in range(10):
        actions = torch.full((12, 1), 0.5)
        env.step(actions)
        alone.step(actions[:4])
    human, push, rest = env.layout.split(env.task.state["dof_vel"])
    assert torch.equal(human, alone.task.state["dof_vel"])
    # 3 N m against 2.5 N m of the task's own action, and none: the same starts
    assert bool((push > human).all()) and bool((human > rest).all())


def test_unsupported_function_is_refused_with_the_reason():
    error = groups(config(), aim=TARGET)[1]["aim"]
    assert error.function == "compute_dof_target" and "no position drives" in str(error)


@pytest.mark.slow
def test_candidates_may_command_or_replace_position_drives():
    cfg = config(PENDULUM, "task.env.drive=position")
    made, faults = groups(cfg, aim=TARGET, motor=TORQUE.format("0.0 * dof_pos"))
    assert not faults
    env = environment(cfg, made)
    env.reset()
    start = env.layout.split(env.task.state["dof_pos"])[2].clone()
    for _ in range(40):
        env.step(torch.full((12, 1), -0.7))
    own, aim, motor = env.layout.split(env.task.state["dof_pos"])
    # the rod's weight bends the spring of 40 N m/rad outwards
    assert bool(((aim > 0.7) & (aim < 1.1)).all()) and bool(((own < -0.7) & (own > -1.1)).all())
    assert bool((motor.abs() > 2.0 * start.abs()).all())  # without a torque it falls, whatever the drive was


@pytest.mark.slow
def test_initial_states_and_goals_override_those_of_the_task():
    cfg = config()
    text = """
def compute_initial_state(dof_pos):
    return {"dof_pos": torch.full_like(dof_pos, 0.25)}
def compute_goal(commands):
    return {"commands": torch.full_like(commands, -0.5)}
def compute_terminal(dof_pos):
    return dof_pos[:, 0] > 0.24
"""
    env = environment(cfg, groups(cfg, mine=text)[0])
    obs = env.reset()
    assert torch.equal(obs[4:, 2:], torch.tensor([[0.25, -0.5]] * 4))  # the task's own observation shows them
    assert not bool((env.task.state["commands"][:4] == -0.5).any())
    (step,) = played(env, 1)
    assert bool(step.terminated[4:].all()) and not bool(step.terminated[:4].any())


def test_task_without_fitness_requires_a_fitness_file():
    with pytest.raises(UserError, match=r"has no fitness of its own.*--fitness FILE"):
        read_fitness(find_spec(config().address), config())


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (f"{FOLDER}/pendulum.py:Rodd", "did you mean Rod"),
        (f"{FOLDER}/pendulun.py:Pendulum", "did you mean pendulum.py"),
        (f"{FOLDER}/pendulum.py:Broken", r"pendulum.py:\d+: NotImplementedError: gym.make_coffee is not supported"),
        (f"{FOLDER}/pendulum.py:Rod@nothing.yaml", "nothing.yaml is not a file"),
        (f"{FOLDER}/vec_task.py:VecTask", "neither pre_physics_step nor post_physics_step"),
    ],
)
def test_invalid_task_raises_a_one_line_error(task, told):
    with pytest.raises(ValueError, match=told) as error:
        find_spec(task).baseline_path("human")
    assert "\n" not in str(error.value)


def test_missing_or_invalid_asset_is_reported_by_name(tmp_path):
    own = (FOLDER / "pendulum.yaml").read_text()
    for asset, text in (("absent.urdf", None), ("bad.urdf", "<robot name='x'><link name='a'>")):
        file = tmp_path / f"{asset}.yaml"
        file.write_text(own.replace("pendulum.urdf", str(tmp_path / asset)))
        if text is not None:
            (tmp_path / asset).write_text(text)
        with pytest.raises(ValueError, match=asset):
            find_spec(f"{FOLDER}/pendulum.py:Rod@{file}").baseline_path("human")


@pytest.mark.parametrize(
    ("task", "variable"), [("isaacgymenvs:Ant", "ISAACGYMENVS_PATH"), ("legged_gym:a1", "LEGGED_GYM_PATH")]
)
def test_missing_checkout_is_reported_with_install_instructions(task, variable, monkeypatch, tmp_path):
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ValueError, match=f"git clone.* && export {variable}"):
        find_spec(task)
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(ValueError, match="name the checkout's folder"):
        find_spec(task)


# overrides reach what the commands learn of a task's state


@pytest.fixture
def task(tmp_path):
    """A pendulum without the ball that its YAML can add."""
    own = (FOLDER / "pendulum.yaml").read_text().replace("maxEffort: 5.0", "maxEffort: 5.0\n  ball: false")
    (tmp_path / "plain.yaml").write_text(own)
    return f"{FOLDER}/pendulum.py:Rod@{tmp_path}/plain.yaml"


@pytest.mark.slow
def test_describe_lists_the_state_that_overrides_add(task, capsys):
    assert main(["--task", task, "--describe"]) == 0
    assert "ball_state" not in capsys.readouterr().out
    assert main(["--task", task, "--describe", "task.env.ball=true", "task.env.maxEffort=7.5"]) == 0
    told = capsys.readouterr().out
    assert "ball_state" in told and "= 7.5" in told
    assert main(["--task", task, "--describe"]) == 0  # in the same process
    told = capsys.readouterr().out
    assert "ball_state" not in told and "= 5" in told


@pytest.mark.slow
def test_check_binds_candidates_to_the_state_that_overrides_add(task, tmp_path, capsys):
    (tmp_path / "high.py").write_text("def compute_reward(ball_state):\n    return ball_state[:, 2]\n")
    (tmp_path / "fitness.py").write_text('"""Height"""\ndef compute_fitness(dof_pos):\n    return dof_pos[:, 0]\n')
    words = ["--task", task, "--check", "--candidates", str(tmp_path / "high.py")]
    words += ["--fitness", str(tmp_path / "fitness.py"), *SETTINGS]
    assert main(words) == 1
    assert "ball_state" in capsys.readouterr().out  # named as unknown
    assert main([*words, "task.env.ball=true"]) == 0


@pytest.mark.slow
def test_override_can_repair_a_config_that_the_task_refuses(task, tmp_path, capsys):
    file = tmp_path / "plain.yaml"
    file.write_text(file.read_text().replace("pendulum.urdf", "absent.urdf"))
    assert main(["--task", task, "--describe"]) == 2
    assert "absent.urdf" in capsys.readouterr().err
    other = task.replace("plain", "other")
    (tmp_path / "other.yaml").write_text(file.read_text())
    assert main(["--task", other, "--describe", "task.env.asset=pendulum.urdf"]) == 0
    assert "last_angle" in capsys.readouterr().out


@pytest.mark.slow
def test_override_that_the_task_refuses_is_reported_in_one_line(task, capsys, tmp_path):
    file = tmp_path / "file.py"
    file.write_text('"""The angle."""\n\n\ndef compute_fitness(dof_pos):\n    return dof_pos[:, 0]\n')
    inputs = ["--fitness", str(file), "--candidates", str(file)]  # read before the task is built
    for more in (["--describe"], ["--check", *SETTINGS]):
        assert main(["--task", task, *inputs, *more, "task.env.asset=absent.urdf"]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert "absent.urdf" in lines[-1] and not any("Traceback" in line for line in lines)


@pytest.mark.slow
def test_tasks_of_two_configs_have_their_own_states(task):
    plain, with_ball = (compose_config(task, [*SETTINGS, f"task.env.ball={own}"]) for own in ("false", "true"))
    assert (
        "ball_state" not in build_task(RunSpec.of(plain), 2).state
        and "ball_state" in build_task(RunSpec.of(with_ball), 2).state
    )
    spec = find_spec(task)
    assert "ball_state" not in task_contract(spec, read_yaml(spec.config)).state  # whatever was built before


@pytest.mark.slow
def test_task_probe_takes_overrides(task):
    probe = TaskCheck(task, "mujoco_cpu", "cpu", ["task.env.ball=true"])
    assert probe.make(2).object_keys == ("ball_state",)
    assert tuple(probe.begin(2).state["ball_state"].shape) == (2, 13)
