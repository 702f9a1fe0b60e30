"""Tasks as other repositories write them: what differs from IsaacGymEnvs and legged_gym themselves."""

import shutil
import sys

import numpy as np
import pytest
import torch
from isaac_helpers import FOLDER, begun, config, human_env, stepped

from envcoder_bench.core.errors import UserError
from envcoder_bench.env.evaluation import run_episodes
from envcoder_bench.run.config_checks import check_task
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.isaacgym_tasks import importing, isaac_task
from envcoder_bench.sources.isaacgym_tasks.find_source import find_source
from envcoder_bench.sources.isaacgym_tasks.fitness import FITNESS, fitness_of
from envcoder_bench.sources.isaacgym_tasks.importing import folder_with
from envcoder_bench.sources.isaacgym_tasks.legged_source import rsl_rl_train
from envcoder_bench.sources.isaacgym_tasks.probe import probe
from envcoder_bench.sources.isaacgym_tasks.source import read_yaml, temporary_folder
from envcoder_bench.sources.registry import find_spec, with_task_config
from envcoder_bench.tools.describe import describe
from isaacgym_mujoco.old_code import Missing

CHECKOUT = FOLDER / "checkout"
WALKER = "legged_gym:walker"


@pytest.fixture
def fork(monkeypatch):
    monkeypatch.setenv("LEGGED_GYM_PATH", str(CHECKOUT))


def test_legged_gym_fork_is_found_by_its_package_name(fork):
    task = build_task(RunSpec.of(config(WALKER)), 2)
    assert type(task.isaac).__module__ == "walker_gym.envs.walker" and task.default_action_dim == 1
    with pytest.raises(ValueError, match="walker_gym has no task 'run'; its tasks are courser, keeper, settler"):
        find_source("legged_gym:run")


def renamed_fork(folder, monkeypatch, changes):
    """A copy of the fork, changed, whose ``utils`` has another name, as in TWIST and smooth-humanoid-locomotion."""
    shutil.copytree(CHECKOUT / "walker_gym", folder / "strider_gym")
    (folder / "strider_gym" / "utils").rename(folder / "strider_gym" / "gym_utils")
    shutil.copy(CHECKOUT.parent / "pendulum.urdf", folder)
    names = {
        "walker_gym.utils": "strider_gym.gym_utils",
        "walker_gym": "strider_gym",
        'parents[3] / "pendulum.urdf"': 'parents[2] / "pendulum.urdf"',
    }
    for file in (folder / "strider_gym").rglob("*.py"):
        text = file.read_text()
        for old, new in {**names, **changes}.items():
            text = text.replace(old, new)
        file.write_text(text)
    monkeypatch.setenv("LEGGED_GYM_PATH", str(folder))
    for name in [name for name in importing._kept if name.startswith("strider_gym")]:
        del importing._kept[name]


def test_registry_in_a_folder_of_another_name_and_a_config_without_clips(tmp_path, monkeypatch):
    renamed_fork(tmp_path, monkeypatch, {"clip_actions=1.0, clip_observations=100.0": ""})
    source = find_source(WALKER)
    assert source.task_class.__module__ == "strider_gym.envs.walker"
    assert build_task(RunSpec.of(config(WALKER)), 2).default_action_dim == 1


def test_yaml_adds_the_keys_that_a_script_of_the_fork_sets(tmp_path, fork, caplog):
    """AirGym's and human2humanoid's scripts do."""
    text = "task: walker\nenv: {mode: rate}\nmotion: {speed: {x: 2}}\ninit_state: {signs: [1, 1]}\n"
    (tmp_path / "mine.yaml").write_text(text)
    address, config_file = with_task_config(WALKER, str(tmp_path / "mine.yaml"))
    assert config_file is None
    source = find_source(address)
    assert source.config["env"]["mode"] == "rate" and source.config["init_state"]["signs"] == [1, 1]
    assert "env.mode, motion.speed.x" in caplog.text and "signs" not in caplog.text
    assert "task" not in source.config and "mode" not in find_source(WALKER).config["env"]
    cfg = source.make(source.config, 2, "cpu").cfg
    assert (cfg.env.mode, cfg.motion.speed.x) == ("rate", 2)


def test_heights_at_places_that_the_task_chooses_are_left_to_it(tmp_path, monkeypatch):
    """As human2humanoid's, along a motion."""
    scan = "def _get_heights(self, position=None, env_ids=None):\n        return position.clone()\n\n    "
    renamed_fork(tmp_path, monkeypatch, {"def _compute_torques(": f"{scan}def _compute_torques("})
    env = human_env(WALKER)
    assert env.task.isaac.cfg.terrain.measure_heights
    env.reset()


@pytest.mark.parametrize("counted, configured", [(2, 1), (1, 2)])
def test_width_of_actions_is_the_one_that_a_step_takes(tmp_path, monkeypatch, counted, configured):
    """HomieRL's policy drives the legs, and its task counts all joints; other configs are out of date."""
    changes = {
        "cfg.env.num_envs, cfg.env.num_actions": f"cfg.env.num_envs, {counted}",
        "num_actions=1": f"num_actions={configured}",
        "delay = ": "actions = actions.view(self.num_envs, 1)\n        delay = ",
    }
    renamed_fork(tmp_path, monkeypatch, changes)
    source = find_source(WALKER)
    assert probe(source, source.config).default_action_dim == 1


def test_steps_have_old_names_of_numpy_and_the_cpu_for_a_cuda_device(tmp_path, monkeypatch):
    """As a fork of AMP_for_hardware, and BalanceBoard_IsaacGym, whose task names a CUDA device."""
    changes = {"delay = ": "np.int(1.0), torch.zeros(1, device='cuda:0')\n        delay = "}
    renamed_fork(tmp_path, monkeypatch, changes)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match=r"walker\.py:.*CUDA.*; set ISAACGYM_DEVICE=cpu"):
            probe(find_source(WALKER), find_source(WALKER).config)
    monkeypatch.setenv("ISAACGYM_DEVICE", "cpu")
    torch.get_device_module.cache_clear()  # the first call of a process may be one with the CPU for "cuda"
    source = find_source(WALKER)
    assert probe(source, source.config).default_action_dim == 1
    stepped(begun(WALKER), steps=1)
    assert not hasattr(np, "int")


def test_robot_that_is_given_its_simulation_is_refused(tmp_path, monkeypatch):
    """As ORCAgym's."""
    old = "def __init__(self, cfg, sim_params, physics_engine, sim_device"
    renamed_fork(tmp_path, monkeypatch, {old: "def __init__(self, gym, sim, cfg, sim_params, sim_device"})
    with pytest.raises(ValueError, match=r"Walker\(gym, sim, cfg, .*is not constructed as legged_gym's .* SCRIPT"):
        find_source(WALKER)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [(2.5, 0.5), ()])
def test_reward_with_a_column_for_each_critic_is_summed_by_its_weights(tmp_path, monkeypatch, weights):
    """As HoST's."""

    changes = {
        "self.normalization =": f"self.rewards = SimpleNamespace(reward_group_weights={weights})\n"
        "        self.normalization =",
        "self.rew_buf, self.reset_buf = torch.zeros(n),": "self.rew_buf, self.reset_buf = torch.zeros(n, 2),",
        "self.rew_buf = torch.cos(self.dof_pos[:, 0])": "self.rew_buf = torch.cos(self.dof_pos.repeat(1, 2))",
    }

    renamed_fork(tmp_path, monkeypatch, changes)
    if not weights:
        with pytest.raises(ValueError, match=r"rew_buf has 2 columns.*reward_group_weights, and there are 0"):
            probe(source := find_source(WALKER), source.config)
        return
    env = begun(WALKER)
    reward = env.step(torch.zeros(env.actions.shape))[1]
    assert torch.allclose(reward.flatten(), 3.0 * torch.cos(env.task.state["dof_pos"][:, 0]), atol=1e-5)


def test_clone_of_rsl_rl_in_the_current_folder_does_not_hide_its_placeholder(tmp_path, monkeypatch):
    (tmp_path / "rsl_rl" / "rsl_rl").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in importing._kept if name.startswith("rsl_rl")]:
        monkeypatch.delitem(importing._kept, name)
    with importing.isaac_imports():
        from rsl_rl.modules.actor_critic import ActorCritic  # type: ignore[import-not-found]
    with pytest.raises(ImportError, match="rsl_rl is not installed"):
        ActorCritic()


def test_other_version_of_rsl_rl_is_completed_by_placeholders(tmp_path, monkeypatch):
    """As PyPI's rsl-rl-lib 5 beside forks whose own rsl_rl has more: go2_rl_gym, expressive-humanoid."""
    (tmp_path / "rsl_rl" / "runners").mkdir(parents=True)
    (tmp_path / "rsl_rl" / "__init__.py").write_text("")
    (tmp_path / "rsl_rl" / "runners" / "__init__.py").write_text("class OnPolicyRunner:\n    version = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in importing._kept if name.startswith("rsl_rl")]:
        monkeypatch.delitem(importing._kept, name)
    with importing.isaac_imports(), importing.isaac_imports():
        from rsl_rl.modules.actor_critic import ActorCritic  # type: ignore[import-not-found]
        from rsl_rl.runners import MoERunner, OnPolicyRunner  # type: ignore[import-not-found]
    assert OnPolicyRunner().version == 5
    for placeholder in (ActorCritic, MoERunner):
        with pytest.raises(ImportError, match="is used, and the installed rsl_rl does not have it"):
            placeholder()
    assert "rsl_rl" not in sys.modules
    for name in [name for name in importing._kept if name.startswith("rsl_rl")]:
        del importing._kept[name]


def subclass(name, base, module):
    return type(name, (base,), {"__module__": module})


@pytest.mark.parametrize("package", ["gpugym.envs", "legged_gym.envs"])
def test_class_derived_from_legged_robot_has_its_fitness_whatever_its_name(package):
    """As pbrs-humanoid's Humanoid, which has no potentials, and whose package is called gpugym."""
    robot = subclass("LeggedRobot", object, package)
    for name in ("Humanoid", "Ant", "HumanoidAMP", "Walker"):
        derived = subclass(f"My{name}", subclass(name, robot, package), package)
        assert fitness_of(derived) is FITNESS["LeggedRobot"]
    assert fitness_of(subclass("Walker", object, package)) is None


def test_registry_that_a_function_fills_is_told_and_a_file_with_both_imports_is_a_task(tmp_path, monkeypatch):
    """As Lite3_rl_training's, whose helpers have no parse_sim_params."""
    renamed_fork(tmp_path, monkeypatch, {"task_registry.register(": "(lambda *task: None)("})
    with pytest.raises(ValueError, match=r"strider_gym registers no task when .* give --task FILE\.py:CLASS"):
        find_source(WALKER)
    helpers = tmp_path / "strider_gym" / "gym_utils" / "helpers.py"
    helpers.write_text("")
    file = tmp_path / "mine.py"
    file.write_text(
        "from strider_gym.envs.walker import Walker, WalkerCfg\n"
        "WalkerCfg.init_state, WalkerCfg.asset = WalkerCfg().init_state, WalkerCfg().asset\n"
    )
    source = find_source(f"{file}:Walker")
    assert source.config["init_state"] == {"signs": [1, -1], "spread": [0.5, 0.25]}
    task = source.make(source.config, 2, "cpu")
    assert task.num_envs == 2 and task.dt == pytest.approx(0.02)


def test_exit_of_a_package_is_one_line_with_what_it_printed(tmp_path, monkeypatch):
    """As tron1-rl-isaacgym's, which asks for an environment variable."""
    lines = 'import sys\nprint("\\033[31mError: set ROBOT_TYPE\\033[0m")\nsys.exit(1)\ntask_registry.register("walker"'
    renamed_fork(tmp_path, monkeypatch, {'task_registry.register("walker"': lines})
    end = r"__init__\.py:\d+: its code called exit\(1\) after it printed: Error: set ROBOT_TYPE$"
    with pytest.raises(ValueError, match=f"{WALKER}: strider_gym cannot be imported: .*{end}"):
        find_source(WALKER)


@pytest.mark.parametrize("change, message", [
    ({"self.obs_buf = torch.zeros(n, 6)": "self.obs_buf = torch.zeros(2 * n, 6)"}, "Walker has 2 agents"),
    ({"torch.ones(n, dtype=torch.long)": "torch.ones(n, 3, dtype=torch.long)"}, "Walker has 3 agents"),
])  # fmt: skip
def test_several_agents_in_an_environment_are_refused(tmp_path, monkeypatch, change, message):
    """As TimeChamber's and btx0424/IsaacGymEnvs'."""
    renamed_fork(tmp_path, monkeypatch, change)
    source = find_source(WALKER)
    with pytest.raises(ValueError, match=f"{message} in each environment, .* SCRIPT"):
        probe(source, source.config)


def test_own_reset_is_called_before_the_first_step_where_reset_idx_needs_it(tmp_path, monkeypatch):
    """As btx0424/IsaacGymEnvs' Quadrotor, whose reset makes the state of its controller."""
    reset = "def reset(self):\n        self.integral = torch.zeros(self.num_envs)\n\n    def compute_observations("
    changes = {"self.dof_vel[env_ids] = 0.0": "self.dof_vel[env_ids] = 0.0; self.integral[env_ids] = 0.0"}
    renamed_fork(tmp_path / "with", monkeypatch, {**changes, "def compute_observations(": reset})
    source = find_source(WALKER)
    assert "integral" in probe(source, source.config).keys
    renamed_fork(tmp_path / "without", monkeypatch, changes)
    with pytest.raises(ValueError, match="has no attribute 'integral'"):
        probe(source := find_source(WALKER), source.config)


def test_references_of_a_yaml_get_the_values_of_the_main_config_of_its_repository(tmp_path):
    """As TimeChamber's, where the number of agents is in cfg/config.yaml."""
    (tmp_path / "task").mkdir()
    file = tmp_path / "task" / "Sumo.yaml"
    file.write_text(
        "env: {numAgents: '${...num_agents}', numEnvs: '${resolve_default:64,${...num_envs}}'}\n"
        "sim: {threads: '${..num_threads}', use_gpu_pipeline: '${eq:${...pipeline},\"gpu\"}'}\n"
    )
    with pytest.raises(ValueError, match="num_agents"):
        read_yaml(file)
    (tmp_path / "config.yaml").write_text(
        "num_agents: 3\nnum_envs: ''\nnum_threads: 8\npipeline: gpu\nmode: '${task.name}'\ndefaults: [{task: Sumo}]\n"
    )
    assert read_yaml(file) == {
        "env": {"numAgents": 3, "numEnvs": 64},
        "sim": {"threads": 8, "use_gpu_pipeline": False},
    }


@pytest.mark.parametrize("theirs, ours", [("silu", "swish"), ("elu", "elu")])
def test_activation_of_rsl_rl_has_the_name_of_rl_games(theirs, ours):
    train = rsl_rl_train({"policy": {"actor_hidden_dims": [8], "activation": theirs}})
    assert train["params"]["network"]["mlp"] == {"units": [8], "activation": ours}


@pytest.mark.slow
def test_config_values_keep_their_types_unless_overridden(fork):
    own = build_task(RunSpec.of(config(WALKER)), 3).isaac.cfg.init_state
    assert isinstance(own.spread, np.ndarray) and own.signs == (1, -1)
    cfg = config(WALKER, "task.init_state.signs=[1,1,-1]")  # a list may get another length
    check_task(find_spec(WALKER), cfg.task)
    own = build_task(RunSpec.of(cfg), 3).isaac.cfg.init_state
    assert list(own.signs) == [1, 1, -1] and isinstance(own.spread, np.ndarray)
    with pytest.raises(UserError, match=r"task\.init_state\.signs must be a list, such as \[1, -1\], got 5"):
        check_task(find_spec(WALKER), config(WALKER, "task.init_state.signs=5").task)


@pytest.mark.slow
def test_reset_does_not_change_histories_of_other_environments(fork):
    env = begun(WALKER)
    stepped(env, 5)
    before = [frame.clone() for frame in env.task.isaac.history]
    mask = torch.tensor([True, False, False, True])
    env.begin_episodes(mask)
    after = list(env.task.isaac.history)
    for k in range(3):
        assert torch.equal(after[k][~mask], before[k][~mask])
    assert after[0][mask].abs().max() == 0 and after[1][mask].abs().max() == 0  # one frame of the new episode
    assert torch.equal(after[2][mask, 0], env.task.state["dof_pos"][mask, 0])


@pytest.mark.slow
def test_robot_with_a_custom_step_method_is_stepped_by_it(fork):
    env = begun("legged_gym:courser")
    before = env.task.state["dof_vel"].clone()
    stepped(env, 1, 1.0)
    assert bool((env.task.state["dof_vel"] > before).all()) and env.task.dt == np.float32(0.02)
    env.task.isaac.dof_pos.fill_(2.0)
    env.task.isaac.gym.set_dof_state_tensor(env.task.isaac.sim, env.task.isaac.dof_state)
    stepped(env, 1, 1.0)
    assert env.task.isaac.obs_buf.max() == 0.5  # step clips after it has observed


@pytest.mark.slow
def test_time_out_set_by_the_task_is_a_truncation_and_is_visible_to_its_reset(fork):
    env = begun("legged_gym:courser")
    env.task.isaac.levels.zero_()
    for k in range(1, 100):
        step = stepped(env, 1)
        own, others = step.truncated[[0, 2]], step.truncated[[1, 3]]
        assert bool(own.all() if k % 6 == 0 else not own.any()) and not bool(step.terminated.any())
        assert bool(others.all() if k == 99 else not others.any())
    assert env.task.isaac.levels.tolist() == [16, 1, 16, 1]  # 99 // 6, and the environment's own time-out


@pytest.mark.slow
def test_time_out_that_the_task_never_clears_does_not_reach_the_next_episode(fork):
    env = begun("legged_gym:keeper")
    for k in range(1, 101):
        step = stepped(env, 1)
        expected = [k % 6 == 0, k == 99] * 2  # the end of the course, and the environment's own time-out
        assert step.truncated.tolist() == expected and not bool(step.terminated.any())
    env.task.isaac.dof_vel[:2] = 50.0
    env.task.isaac.gym.set_dof_state_tensor(env.task.isaac.sim, env.task.isaac.dof_state)
    step = stepped(env, 1)
    assert step.terminated.tolist() == [True, True, False, False] and not bool(step.truncated.any())


@pytest.mark.slow
def test_evaluation_continues_after_time_outs_set_by_the_task(fork):
    env = human_env("legged_gym:courser")
    played = run_episodes(env, lambda obs: torch.zeros(env.actions.shape), 1, 0)
    assert played.length.flatten().tolist() == [99.0] * 4 and env.task.isaac.levels[0] - env.task.isaac.levels[1] == 16


@pytest.mark.slow
def test_properties_changed_by_resets_are_in_checkpoints(fork):
    env = begun("legged_gym:courser")
    first = env.task.get_state()
    stepped(env, 7, 1.0)
    saved, counter = env.get_state(), env.step_count
    other = human_env("legged_gym:courser")
    other.set_state(saved)
    assert other.step_count == counter and _properties(other) == _properties(env)
    for _ in range(7):
        expected, step = stepped(env, 1, 1.0), other.step(torch.ones(env.actions.shape))
        assert torch.equal(step.obs, expected.obs) and torch.equal(step.reward, expected.reward)
    now = _properties(env)
    assert len({damping for damping, _ in now}) == 4
    env.task.set_state(first)
    fresh = begun("legged_gym:courser")
    assert _properties(env) == _properties(fresh) != now


def _properties(env):
    gym, envs = env.task.isaac.gym, env.task.isaac.envs
    bodies = [gym.get_actor_rigid_body_properties(own, 0)[1] for own in envs]
    damping = [float(gym.get_actor_dof_properties(own, 0)["damping"][0]) for own in envs]
    return [(drag, (body.mass, body.inertia.x.x)) for drag, body in zip(damping, bodies)]


@pytest.mark.slow
def test_simulating_reset_does_not_advance_other_environments(fork):
    env = begun("legged_gym:settler")
    stepped(env, 5, 1.0)
    task = env.task.isaac
    before = task.dof_state.clone()
    mask = torch.tensor([True, False, False, True])
    env.begin_episodes(mask)
    task.gym.simulate(task.sim)
    task.gym.refresh_dof_state_tensor(task.sim)
    after = task.dof_state.clone()
    other = human_env("legged_gym:settler")  # the same, without a reset
    other.reset()
    stepped(other, 5, 1.0)
    task = other.task.isaac
    assert torch.equal(task.dof_state, before)
    task.gym.simulate(task.sim)
    task.gym.refresh_dof_state_tensor(task.sim)
    assert torch.equal(after[~mask], task.dof_state[~mask]) and not torch.equal(after[mask], task.dof_state[mask])


@pytest.mark.slow
def test_groups_of_one_seed_get_equal_delays_frictions_and_centres_of_mass(fork):
    env = begun(WALKER, count=2)
    stepped(env, 10, 1.0)
    first, second = env.layout.split(env.task.state["dof_pos"])
    assert torch.equal(first, second) and len(set(first.flatten().tolist())) == 4
    task = env.task.isaac
    bodies = [task.gym.get_actor_rigid_body_properties(own, 0)[1].com.x for own in task.envs]
    damping = [float(task.gym.get_actor_dof_properties(own, 0)["damping"][0]) for own in task.envs]
    for drawn in (bodies, damping):
        assert drawn[:4] == drawn[4:] and len(set(drawn)) == 4


@pytest.mark.slow
def test_candidates_with_different_initial_states_are_logged(fork, caplog, monkeypatch):
    monkeypatch.setattr(isaac_task, "_told", set())
    begun(WALKER, count=2)
    begun("legged_gym:sharer")
    assert "begin with different" not in caplog.text
    begun("legged_gym:sharer", count=2)
    assert "legged_gym:sharer: candidates of one seed begin with different commands:" in caplog.text
    assert "--isolate process" in caplog.text


@pytest.mark.slow
def test_rows_drawn_after_an_environment_loop_are_independent_of_other_groups(fork):
    alone, beside = human_env("legged_gym:courser"), human_env("legged_gym:courser", count=3)
    strength = alone.task.state["strength"]
    assert torch.equal(beside.task.state["strength"], strength.repeat(3, 1)) and len(set(strength[:, 0].tolist())) == 4


@pytest.mark.slow
def test_tensor_that_the_first_step_replaces_by_one_of_another_shape_is_in_the_state(fork):
    env = human_env("legged_gym:stepper")
    assert env.task.state["heights"].shape == (4, 2) and not bool(env.task.isaac.episode_length_buf.any())
    env.reset()
    for _ in range(3):
        stepped(env, 1, 1.0)
        env.task.finish_step()  # its own observation reads the heights of the step before
        angles = env.task.state["dof_pos"]
        assert torch.equal(env.task.state["heights"], torch.cat((angles, angles + 1.0), dim=1))


@pytest.mark.slow
def test_task_with_its_reward_in_step_is_stepped_by_its_own_step():
    env = human_env(f"{FOLDER}/flyer.py:Flyer")
    assert env.task.dt == pytest.approx(4 * 0.02) and env.task.num_dofs == 0
    env.reset()
    step = stepped(env, 3, 0.5)
    time = 3 * env.task.dt
    torch.testing.assert_close(step.reward, torch.full((4,), 5.0 + 0.5 * 0.5 * 9.81 * time**2), rtol=0.02, atol=0.0)
    step = stepped(env, 56)
    assert bool(step.truncated.all()) and not bool(step.terminated.any())


@pytest.mark.slow
def test_simulating_reset_is_not_counted_in_the_control_step():
    assert human_env(f"{FOLDER}/flyer.py:Dropped@{FOLDER}/flyer.yaml").task.dt == pytest.approx(4 * 0.02)


@pytest.mark.slow
def test_controller_called_between_simulation_steps_is_applied():
    env = human_env(f"{FOLDER}/flyer.py:Controlled@{FOLDER}/pendulum.yaml")
    assert env.task.dt == pytest.approx(3 * 0.02)
    env.reset()
    stepped(env, 20, 0.4)
    assert (env.task.state["dof_pos"] - 0.4).abs().max() < 0.05


@pytest.mark.slow
def test_task_without_joints_or_fitness_is_described():
    told = describe(f"{FOLDER}/flyer.py:Flyer")
    assert "fitness: none: give --fitness FILE" in told and "this task has no joints" in told
    assert "1 actions are applied by the task itself" in told


@pytest.mark.parametrize("marked", [True, False])
def test_file_of_a_package_is_imported_with_its_package(tmp_path, marked):
    """A folder without ``__init__.py`` in a package is a part of it, as in human2humanoid."""
    inside = tmp_path / "hands" / "tasks"
    inside.mkdir(parents=True)
    (tmp_path / "hands" / "__init__.py").touch()
    if marked:
        (inside / "__init__.py").touch()
    (tmp_path / "hands_tools.py").write_text("LENGTH = 60\n")
    (inside / "base.py").write_text((FOLDER / "vec_task.py").read_text())
    text = (FOLDER / "pendulum.py").read_text().replace("from vec_task import", "from .base import")
    (inside / "rod.py").write_text(text.replace("import torch\n", "import torch\nfrom hands_tools import LENGTH\n", 1))
    (inside / "rod.yaml").write_text((FOLDER / "pendulum.yaml").read_text())
    source = find_source(f"{inside}/rod.py:Rod")
    assert source.task_class.__module__ == "hands.tasks.rod" and tmp_path in source.folders


def test_file_in_a_circle_of_imports_is_imported_as_a_module_of_its_package(tmp_path):
    """As RoboDuet's and IsaacGymManipulation's, whose packages import another module first."""
    envs = tmp_path / "reach" / "envs"
    envs.mkdir(parents=True)
    (envs / "__init__.py").write_text("WIDTH = 1\nfrom reach.envs.rod import Rod\n")
    (tmp_path / "reach" / "tools.py").write_text("from reach.envs import WIDTH\nLENGTH = 60\n")
    (envs / "vec_task.py").write_text((FOLDER / "vec_task.py").read_text())
    text = (FOLDER / "pendulum.py").read_text().replace("from vec_task import", "from reach.envs.vec_task import")
    text = text.replace("import torch\n", "import torch\nfrom reach.tools import LENGTH\n", 1)
    (envs / "rod.py").write_text(text)
    (envs / "rod.yaml").write_text((FOLDER / "pendulum.yaml").read_text())
    assert find_source(f"{envs}/rod.py:Rod").task_class.__module__ == "reach.envs.rod"


def test_robot_of_a_file_needs_no_helpers_of_its_repository(tmp_path, monkeypatch):
    """As in forks that are no package, whose script registers tasks, and whose helpers are in other files."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "envs", raising=False)
    walker = (CHECKOUT / "walker_gym" / "envs" / "walker.py").read_text()
    config = (
        "class TrotterCfg(WalkerCfg):\n    class init_state:\n        pass\n    class asset:\n        file = 'a.urdf'\n"
    )
    (tmp_path / "envs" / "robot.py").write_text(f"{walker}\n\n{config}")
    (tmp_path / "train.py").write_text("from envs.robot import TrotterCfg, Walker\n")
    try:
        assert find_source(f"{tmp_path}/train.py:Walker").config["sim"]["dt"] == 0.02
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "envs"]:
            del sys.modules[name]


def test_checkout_that_is_no_package_is_refused_with_the_remedy(tmp_path, monkeypatch):
    """As zgszhygzhl/ddt_tita_rl_isaacgym, whose modules import each other from the checkout's folder."""
    for file, text in {
        "envs/__init__.py": "from utils.task_registry import task_registry\n",
        "utils/__init__.py": "",
        "utils/task_registry.py": "task_registry = None\n",
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    monkeypatch.setenv("LEGGED_GYM_PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"No module named 'utils'; .* is not a package: .* --task FILE.py:CLASS"):
        find_source("legged_gym:a1")


def test_robot_without_its_own_config_class_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("LEGGED_GYM_PATH", raising=False)
    (tmp_path / "walk.py").write_text(
        "class LeggedRobotCfg:\n    class init_state:\n        pass\n    class asset:\n        file = ''\n\n"
        "class Walk:\n    def __init__(self, cfg, sim_params, physics_engine, sim_device, headless):\n        pass\n"
        "    def post_physics_step(self):\n        pass\n"
    )
    (tmp_path / "own.py").write_text((tmp_path / "walk.py").read_text().replace("file = ''", "file = 'a.urdf'"))
    assert find_source(f"{tmp_path}/own.py:Walk").config["asset"] == {"file": "a.urdf"}
    with pytest.raises(ValueError, match=r"a class named WalkCfg; .*legged_gym:NAME with LEGGED_GYM_PATH"):
        find_source(f"{tmp_path}/walk.py:Walk")


OLD = """
import torch
from env.tasks.base import Base
from isaacgym import gymapi

class Old(Base):
    def __init__(self, cfg, sim_params, physics_engine, device_type, device_id, headless, is_multi_agent=False):
        self.gym, self.cfg, self.sim_params = gymapi.acquire_gym(), cfg, sim_params
        self.num_envs, self.num_actions, self.device = cfg["env"]["numEnvs"], 1, device_type
        self.max_episode_length, self.begun = 50, []
        self.sim = self.gym.create_sim(0, -1, physics_engine, sim_params)
        ball = self.gym.create_sphere(self.sim, 0.1, gymapi.AssetOptions())
        for k in range(self.num_envs):
            env = self.gym.create_env(self.sim, gymapi.Vec3(), gymapi.Vec3(), 4)
            self.gym.create_actor(env, ball, gymapi.Transform(), "ball", k, 0)
        self.gym.prepare_sim(self.sim)
        self.roots = self.gym.acquire_actor_root_state_tensor(self.sim)
        zeros = torch.zeros(self.num_envs)
        self.rew_buf, self.obs_buf = zeros.clone(), torch.zeros(self.num_envs, 1)
        self.progress_buf, self.reset_buf = zeros.long(), zeros.long() + 1

    def reset(self, env_ids, goal_env_ids):
        self.roots[env_ids] = 0.0
        self.roots[env_ids, 6] = 1.0
        self.roots[env_ids, 2] = 1.0
        self.gym.set_actor_root_state_tensor(self.sim, self.roots)
        self.progress_buf[env_ids] = 0

    def pre_physics_step(self, actions):
        env_ids = self.reset_buf.nonzero().flatten()
        if len(env_ids):
            self.reset(env_ids, env_ids)

    def compute_observations(self):
        self.gym.refresh_actor_root_state_tensor(self.sim)
        self.obs_buf[:, 0] = self.roots[:, 2]

    def post_physics_step(self):
        self.progress_buf += 1
        self.compute_observations()
        self.rew_buf = self.roots[:, 2].clone()
"""


@pytest.mark.slow
def test_task_from_before_isaacgymenvs_is_built_by_its_constructor(tmp_path):
    """As in Bi-DexHands: ``reset(env_ids, goal_env_ids)`` begins episodes."""
    tasks = tmp_path / "old" / "env" / "tasks"  # "env" has no __init__.py
    tasks.mkdir(parents=True)
    (tasks / "__init__.py").touch()
    (tasks / "base.py").write_text("class Base:\n    pass\n")
    (tasks / "old.py").write_text(OLD)
    (tasks / "old.yaml").write_text("env:\n  numEnvs: 4\nsim:\n  substeps: 2\n  gravity: [0.0, 0.0, -9.81]\n")
    task = f"{tasks}/old.py:Old"
    env = begun(task)
    for _ in range(3):
        reward = env.step(torch.zeros(env.actions.shape))[1]
    h, n = 1 / 120, 6  # two substeps of 1/120 s in each of three steps
    assert reward.flatten()[0].item() == pytest.approx(1 - 9.81 * h * h * n * (n + 1) / 2, rel=1e-5)
    (tasks / "old.py").write_text(OLD.replace("def reset(", "def begin(").replace("self.reset(", "self.begin("))
    with pytest.raises(
        ValueError, match=r"Old\(cfg, sim_params, .*is a task of Isaac Gym before IsaacGymEnvs, and has no"
    ):
        find_source(task)


def test_class_that_only_shares_a_shipped_task_s_name_has_another_name_and_no_fitness(tmp_path):
    """As ASE's and PHC's Humanoid."""
    text = "from isaacgym import rlgpu\n\n\nclass Humanoid:\n    def pre_physics_step(self): ...\n"
    (tmp_path / "humanoid.py").write_text(text)
    (tmp_path / "humanoid.yaml").write_text("name: Humanoid\nenv: {numEnvs: 4}\n")
    spec = find_spec(f"{tmp_path / 'humanoid.py'}:Humanoid")
    assert spec.name == "isaacgym_Humanoid" and spec.fitness_meaning == "" and find_spec("Humanoid").name == "Humanoid"


def test_folder_with_finds_packages_with_and_without_init_py(tmp_path):
    (tmp_path / "fork" / "isaacgymenvs" / "tasks").mkdir(parents=True)
    (tmp_path / "fork" / "isaacgymenvs" / "tasks" / "__init__.py").touch()
    assert folder_with(tmp_path / "fork", "isaacgymenvs") == tmp_path / "fork"
    (tmp_path / "legged_gym" / "legged_gym").mkdir(parents=True)  # the repository, and its package
    (tmp_path / "legged_gym" / "legged_gym" / "__init__.py").touch()
    assert folder_with(tmp_path, "legged_gym") == tmp_path / "legged_gym"
    assert folder_with(tmp_path / "fork", "legged_gym") is None


def test_yaml_is_merged_with_its_defaults(tmp_path):
    (tmp_path / "base.yaml").write_text("env: {length: 5, mass: 1.0}\nsim: {dt: 0.1}\n")
    (tmp_path / "own.yaml").write_text("defaults:\n  - base\nenv: {mass: 2.0}\n")
    (tmp_path / "own.yml").write_bytes((tmp_path / "own.yaml").read_bytes())
    for name in ("own.yaml", "own.yml"):
        assert read_yaml(tmp_path / name) == {"env": {"length": 5, "mass": 2.0}, "sim": {"dt": 0.1}}
    (tmp_path / "first.yaml").write_text("defaults:\n  - _self_\n  - base\nenv: {mass: 2.0}\n")
    assert read_yaml(tmp_path / "first.yaml")["env"]["mass"] == 1.0
    (tmp_path / "scene").mkdir()
    (tmp_path / "scene" / "table.yaml").write_text("folder: ${hydra:runtime.cwd}/assets\n")
    (tmp_path / "groups.yaml").write_text("defaults:\n  - scene: table\nenv: {scene: '${scene}'}\n")
    assert read_yaml(tmp_path / "groups.yaml")["env"]["scene"] == {"folder": f"{tmp_path.cwd()}/assets"}
    (tmp_path / "lost.yaml").write_text("defaults:\n  - gone\n")
    with pytest.raises(ValueError, match=r"lost\.yaml: its defaults cannot be composed: .*Could not load 'gone'"):
        read_yaml(tmp_path / "lost.yaml")
    # files of the folders above, which Hydra places below nameless keys
    (tmp_path / "scene" / "above.yaml").write_text("defaults: [../base]\nenv: {mass: 3.0}\n")
    assert read_yaml(tmp_path / "scene" / "above.yaml") == {"env": {"length": 5, "mass": 3.0}, "sim": {"dt": 0.1}}
    (tmp_path / "nested.yaml").write_text("defaults: [scene/above]\n")
    with pytest.raises(ValueError, match=r"nested\.yaml: its defaults cannot be composed: .*'\.\.'"):
        read_yaml(tmp_path / "nested.yaml")
    (tmp_path / "odd.yaml").write_text("defaults: [[1]]\n")
    with pytest.raises(ValueError, match=r"odd\.yaml: its defaults cannot be composed"):
        read_yaml(tmp_path / "odd.yaml")
    # a key of the task's own
    (tmp_path / "key.yaml").write_text("defaults: {mass: 1}\n")
    assert read_yaml(tmp_path / "key.yaml") == {"defaults": {"mass": 1}}


def test_tasks_read_data_of_the_current_folder_and_write_their_models_elsewhere(tmp_path, monkeypatch):
    """As a fork with trajectories in files, and IsaacGymEnvs' Quadcopter."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "path.csv").write_text("0,1")
    with temporary_folder():
        (tmp_path.cwd() / "model.xml").write_text("<mujoco/>")
        assert (tmp_path.cwd() / "data" / "path.csv").read_text() == "0,1"
    assert tmp_path.cwd() == tmp_path and [str(x.relative_to(tmp_path)) for x in tmp_path.rglob("*.*")] == [
        "data/path.csv"
    ]


def test_use_of_a_missing_module_raises_an_error_with_its_name():
    absent = Missing("absent")
    with pytest.raises(ImportError, match=r"absent\.transforms is used, and absent is not installed"):
        absent.transforms.Resize  # noqa: B018
    with pytest.raises(ImportError, match=r"absent\.SDF is used, and absent is not installed"):
        absent.SDF(1)
