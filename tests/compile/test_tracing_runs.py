"""Compiled functions in real environments: baselines, realistic candidates, evaluation, and runs without a compiler."""

import sys
import warnings
from pathlib import Path

import pytest
import torch

from envcoder_bench.cli.eval_shapers import main
from envcoder_bench.compile import kernels
from envcoder_bench.core import noise
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.registry import find_spec

sys.path.insert(0, str(Path(__file__).parents[2]))
from scripts.bench.candidates import make_candidates

pytestmark = pytest.mark.slow

N = 5
ITEM = "def compute_reward(pole_angle):\n    return torch.cos(pole_angle) * (1.0 if pole_angle.sum() > 9 else 0.5)\n"
OWN = """
def compute_reward(pole_angle):
    return torch.cos(pole_angle), {"cos": torch.cos(pole_angle)}
def compute_observation(dof_pos, dof_vel):
    return torch.cat((dof_pos, dof_vel, dof_pos * dof_vel), dim=-1)
def compute_terminal(pole_angle):
    return pole_angle.abs() > 0.2
def compute_initial_state(dof_pos):
    return {"dof_pos": torch.zeros_like(dof_pos) + 0.1}
"""


def prepared(task, sources, compiled=True, sim="mujoco_cpu"):
    cfg = compose_config(task, [f"num_envs_per_candidate={N}", f"compile_shapers={str(compiled).lower()}"])
    cfg = cfg.model_copy(update={"sim": sim, "device": "cpu"})
    groups, failed = prepare(RunSpec.of(cfg, sources))
    assert not failed
    return cfg, groups


def make_env(cfg, groups, evaluation=False):
    shapings = [group.evaluation if evaluation else group.shaping for group in groups]
    return build_env(RunSpec.of(cfg), shapings, [group.seed for group in groups], N)


def stages(env):
    """For each stage, the groups whose functions are compiled, and those that are called."""
    return {
        name: ([call.group for call, _ in stage.traced], [call.group for call in stage.calls])
        for name, stage in env.dispatch.stages.items()
    }


def rollout(env, steps=4):
    """All that the functions gave in some steps, copied."""
    made = [env.reset().clone()]
    for t in range(steps):
        step = env.step(torch.full_like(env.actions, 0.3 - 0.1 * t))
        made += [x.clone() for x in (step.obs, step.reward, step.done, env.task.state["dof_pos"])]
    return made


def test_compiled_baselines_and_benchmark_candidates_match_eager():
    sources = [*baseline_sources(find_spec("Anymal")), *make_candidates(14)]
    compiled, called = (make_env(*prepared("Anymal", sources, on)) for on in (True, False))
    assert all(not eager for _, eager in stages(compiled).values())
    assert all(not traced for traced, _ in stages(called).values())
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # no kernel is taken back
        compiled.reset(), called.reset()
        for t in range(3):
            action = torch.sin(torch.arange(compiled.actions.numel()) * 0.7 + t).view_as(compiled.actions)
            step = compiled.step_count
            for env in (compiled, called):
                for key, x in env.task.state.items():
                    x.copy_(called.task.state[key])  # contacts magnify the last bit
                env.advance(action)
            for key, x in compiled.task.state.items():
                x.copy_(called.task.state[key])
            mask = torch.ones(compiled.num_envs, dtype=torch.bool)
            one, two = compiled.dispatch, called.dispatch
            pairs = [
                (one.command(action, step), two.command(action, step)), (one.reward(step), two.reward(step)),
                (one.terminal(step), two.terminal(step)), (one.observation(step), two.observation(step)),
                *zip(one.initial_state(mask, step).values(), two.initial_state(mask, step).values()),
                *zip(one.goal(mask, step).values(), two.goal(mask, step).values()),
            ]  # fmt: skip
            for mine, expected in pairs:
                torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)
            compiled.step_count += 1
            called.step_count += 1
    for mine, expected in zip(compiled.dispatch.components.means(), called.dispatch.components.means()):
        assert mine == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_evaluation_uses_the_programs_of_the_unshaped_baseline():
    sources = [CandidateSource("own", "own.py", OWN), *baseline_sources(find_spec("Cartpole"))]
    cfg, groups = prepared("Cartpole", sources)
    own = next(group for group in groups if group.name == "own")
    unshaped = next(group for group in groups if group.name == "unshaped")
    assert set(own.shaping.programs) == {"command", "reward", "terminal", "initial_state", "observation"}
    for stage in ("command", "observation"):
        assert own.evaluation.programs[stage] is own.shaping.programs[stage]
    for stage in ("reward", "terminal", "initial_state", "goal"):
        assert own.evaluation.programs.get(stage) is unshaped.shaping.programs.get(stage)
        if stage in own.shaping.programs:
            assert own.evaluation.programs.get(stage) is not own.shaping.programs[stage]
    training, evaluation = make_env(cfg, [own]), make_env(cfg, [own], evaluation=True)
    plain = make_env(cfg, [unshaped], evaluation=True)
    assert not any(eager for env in (training, evaluation) for _, eager in stages(env).values())
    training.reset()
    training.step(torch.zeros_like(training.actions))
    evaluation.step_count = plain.step_count = noise.EVALUATION_STEP
    evaluation.reset(), plain.reset()
    for env in (evaluation, plain):
        env.task.state["dof_pos"][:, 1] = torch.tensor([0.0, 0.1, 0.25, 0.5, 3.0])
    assert torch.equal(evaluation.dispatch.terminal(0), plain.dispatch.terminal(0))
    assert torch.equal(evaluation.dispatch.reward(0), plain.dispatch.reward(0))


def test_functions_run_eagerly_if_compilation_is_off_or_unavailable(monkeypatch):
    sources = [CandidateSource("own", "own.py", OWN)]
    cfg, groups = prepared("Cartpole", sources, compiled=False)
    expected = make_env(cfg, groups)
    assert not any(traced for traced, _ in stages(expected).values())
    monkeypatch.setattr(kernels, "available", lambda: False)  # no Warp
    cfg, groups = prepared("Cartpole", sources)
    env = make_env(cfg, groups)
    assert not any(traced for traced, _ in stages(env).values())
    for mine, other in zip(rollout(env), rollout(expected)):
        assert torch.equal(mine, other)


def test_command_compiles_by_default(tmp_path, monkeypatch):
    path, told = tmp_path / "own.py", []
    path.write_text(OWN, encoding="utf-8")
    original = kernels.launches
    monkeypatch.setattr(kernels, "launches", lambda *given: told.append(1) or original(*given))
    words = ["--task", "Cartpole", "--candidates", str(path), "--sim", "mujoco_cpu", "--device", "cpu"]
    words += ["--num_envs_per_candidate", "4", "--learning_iterations", "1", "evaluation.num_envs=2"]
    words += ["evaluation.final_episodes=2", "evaluation.points=1", "task.env.episodeLength=20"]
    assert main([*words, "compile_shapers=false", "--output_dir", str(tmp_path / "called")]) == 0 and not told
    assert main([*words, "--output_dir", str(tmp_path / "compiled")]) == 0 and told


def test_refused_compilation_is_logged_once_with_its_line(caplog):
    sources = [CandidateSource("item", "item.py", ITEM), CandidateSource("own", "own.py", OWN)]
    cfg, groups = prepared("Cartpole", sources)
    told = [line for line in caplog.messages if "not compiled" in line]
    assert len(told) == 1
    assert told[0].startswith("item.py:2: in compute_reward: ") and told[0].endswith("and runs more slowly")
    env = make_env(cfg, groups)
    assert stages(env)["reward"] == ([1], [0])
    caplog.clear()
    prepared("Cartpole", sources, compiled=False)
    assert "not compiled" not in caplog.text


def test_seeds_share_programs_and_draw_different_random_numbers():
    cfg = compose_config("Anymal", [f"num_envs_per_candidate={N}", "seeds=3"])
    cfg = cfg.model_copy(update={"sim": "mujoco_cpu", "device": "cpu"})
    groups, _ = prepare(RunSpec.of(cfg, make_candidates(1)))
    assert [group.seed for group in groups] == [0, 1, 2]
    assert len({id(group.shaping.programs["initial_state"]) for group in groups}) == 1
    env = make_env(cfg, groups)
    mask = torch.ones(env.num_envs, dtype=torch.bool)
    made = env.dispatch.initial_state(mask, 0)["dof_pos"].view(3, N, -1)
    assert not torch.equal(made[0], made[1]) and not torch.equal(made[1], made[2])
