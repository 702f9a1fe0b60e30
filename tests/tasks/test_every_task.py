"""What every registered task must do, on every simulator that runs here: a new task is in these tests by its name."""

from __future__ import annotations

import sys

import pytest
import torch
from task_helpers import baseline, begin, shipped, whole_state

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.eval_shapers import main
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare import baseline_sources, build_task, prepare
from envcoder_bench.tasks.registry import get_spec, make_task, task_names

if sys.version_info < (3, 11):
    pytest.skip("MuJoCo needs Python 3.11", allow_module_level=True)

EPISODE = {"Anymal": "task.env.learn.episodeLength_s=0.4"}  # a short one; else the other tasks' key
CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SIMS = [
    ("mujoco_cpu", "cpu"),
    pytest.param("mujoco_warp", "cpu", marks=pytest.mark.slow),
    pytest.param("mujoco_warp", "cuda:0", marks=[CUDA, pytest.mark.cuda]),
]
pytestmark = [pytest.mark.parametrize("name", task_names()), pytest.mark.parametrize(("sim", "device"), SIMS)]


def tasks(name, sim, device, num_envs, count=2):
    """Tasks with their human baseline's first episodes begun, all alike."""
    functions, made = baseline(name, "human"), []
    for _ in range(count):
        task = make_task(name, shipped(name), num_envs, sim, device)
        task.set_drive_mode(torch.full((num_envs,), task.default_action_dim is None, device=device))
        torch.manual_seed(0)
        begin(task, functions)
        made.append(task)
    return made


def commands(task, steps, seed=0):
    """Random commands ``(steps, num_envs, num_dofs)`` of the human baseline's action space."""
    functions, state = baseline(task.name, "human"), whole_state(task)
    width = functions.candidate.action_dim or task.default_action_dim
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        action = (2.0 * torch.rand(task.num_envs, width, generator=generator) - 1.0).to(task.device)
        if task.default_action_dim is None:
            yield functions("compute_torque", state, action)
        else:
            yield task.default_dof_target(action, state)


def assert_same(task, other, rows=slice(None)):
    for key, x in task.state.items():
        if task.device.type == "cpu":
            assert torch.equal(x[rows], other.state[key][rows]), key
        else:  # sums by atomic additions, in no fixed order
            torch.testing.assert_close(x[rows], other.state[key][rows], rtol=1e-2, atol=1e-2)


def test_same_start_same_rollout(name, sim, device):
    task, twin = tasks(name, sim, device, num_envs=3)
    before = {key: x.clone() for key, x in task.state.items()}
    for command in commands(task, 10):
        task.step(command)
        twin.step(command)
        assert_same(task, twin)
        assert torch.equal(task.fitness(task.state), twin.fitness(twin.state)) or device != "cpu"
    assert any(not torch.equal(x, task.state[key]) for key, x in before.items())


def test_reset_leaves_nothing_of_the_past(name, sim, device):
    """Some environments that have moved begin anew, and are like new ones; the others go on."""
    task, twin, fresh = tasks(name, sim, device, num_envs=4, count=3)
    start = {key: fresh.state[key].clone() for key in fresh.default_state}
    goal = {key: fresh.state[key].clone() for key in fresh.goal_keys}
    mask = torch.tensor([True, False, True, False], device=device)
    for command in commands(task, 8):
        task.step(command)
        twin.step(command)
    task.reset(mask, start, {})
    task.reset(mask, {}, goal)
    assert_same(task, fresh, mask)
    assert_same(task, twin, ~mask)
    for command in commands(task, 4, seed=1):
        for each in (task, twin, fresh):
            each.step(command)
        assert_same(task, fresh, mask)
        assert_same(task, twin, ~mask)


def test_a_restored_task_goes_on_as_if_uninterrupted(name, sim, device):
    task, other = tasks(name, sim, device, num_envs=2)
    for command in commands(task, 6):
        task.step(command)
    other.set_state(task.get_state())
    assert_same(task, other)
    for command in commands(task, 4, seed=1):
        task.step(command)
        other.step(command)
        assert_same(task, other)


def test_an_environment_does_not_depend_on_how_many_there_are(name, sim, device):
    many, one = tasks(name, sim, device, 7, 1)[0], tasks(name, sim, device, 1, 1)[0]
    start = {key: many.state[key][:1].clone() for key in many.default_state}
    goal = {key: many.state[key][:1].clone() for key in many.goal_keys}
    everywhere = torch.ones(1, dtype=torch.bool, device=device)
    one.reset(everywhere, start, {})
    one.reset(everywhere, {}, goal)
    for command in commands(many, 10):
        many.step(command)
        one.step(command[:1])
    for key, x in one.state.items():
        if device == "cpu":
            assert torch.equal(x, many.state[key][:1]), key
        else:
            torch.testing.assert_close(x, many.state[key][:1], rtol=1e-2, atol=1e-2)
    assert one.fitness(one.state).shape == (1,)


def test_the_state_is_what_its_fields_say(name, sim, device):
    task = make_task(name, shipped(name), 2, sim, device)
    for key, field in get_spec(name).task_class.fields.items():
        if field.shape is None:
            assert task.constants[key].device.type == "cpu", key
        elif key not in ("actions", "progress_buf"):  # the environment's own
            x = task.state[key]
            assert tuple(x.shape) == (2, *field.shape) and x.device == task.device and x.is_floating_point(), key
            assert x[0].is_contiguous(), f"{key}: kernels read only what lies in a row"
    assert task.num_dofs == task.fields["dof_pos"].shape[0]
    assert task.bytes_per_env > 0 and task.fitness_meaning


@pytest.mark.slow
def test_a_thousand_steps_of_random_actions_are_finite(name, sim, device):
    """In the environment that trains, with both baselines; where physics is slow, with one and a thousand in all."""
    quick = sim == "mujoco_cpu" or device != "cpu"
    cfg = compose_config(name, ["num_envs_per_candidate=4", "compile_shapers=false"])
    cfg.sim, cfg.device = sim, device
    groups, failed = prepare(cfg, baseline_sources(name)[0 if quick else 1 :])
    assert not failed and groups[-1].name == "unshaped"
    layout = GroupLayout(len(groups), cfg.num_envs_per_candidate)
    env = GroupedVecTask(build_task(cfg, layout.num_envs), layout, [g.shaping for g in groups], [0] * len(groups))
    env.reset()
    ended, generator, steps = 0, torch.Generator().manual_seed(0), 1000 if quick else 250
    for step in range(steps):
        action = 2.0 * torch.rand(env.actions.shape, generator=generator) - 1.0
        obs, reward, done, _ = env.step(action.to(device))
        ended += int(done.sum())
        assert bool(torch.isfinite(obs["obs"]).all()) and bool(torch.isfinite(reward).all()), f"step {step}"
    assert all(env.alive) and (ended > 0 or steps < env.full_episode)
    assert env.stats.unstable_resets.sum() <= 0.001 * steps * env.num_envs
    assert not env.take_contact_overflows().any(), "the model has too little room for its contacts"


@pytest.mark.slow
def test_both_baselines_are_compiled_and_train(name, sim, device, tmp_path, capsys):
    candidate = tmp_path / "joints.py"
    candidate.write_text("def compute_observation(dof_pos, dof_vel):\n    return torch.cat([dof_pos, dof_vel], 1)\n")
    where = ["--sim", sim, "--device", device, "--output_dir", str(tmp_path / "run")]
    small = ["--learning_iterations", "2", "--num_envs_per_candidate", "4"]
    small += [EPISODE.get(name, "task.env.episodeLength=12"), "evaluation.num_envs=1"]
    small += ["evaluation.final_episodes=1", "evaluation.points=1"]
    assert main(["--task", name, "--candidates", str(candidate), *where, *small]) == 0
    told = capsys.readouterr()
    assert "human (baseline)" in told.out and "unshaped (baseline)" in told.out and "failed" not in told.out
    assert "not compiled" not in told.err
