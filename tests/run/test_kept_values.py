"""Candidates that keep values between calls in ways that only a call shows train as they are written."""

import logging

import pytest
import torch

import envcoder_bench
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.inputs import resolve
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.registry import find_spec

pytestmark = pytest.mark.slow

CURRICULUM = """
class Curriculum: pass
CURRICULUM = Curriculum()
CURRICULUM.calls = 0
def weight(curriculum):
    curriculum.calls += 1
    return 1.0 if curriculum.calls <= 20 else 5.0
def compute_reward(pole_angle):
    w = weight(CURRICULUM)
    return torch.cos(pole_angle) * w, {"weight": torch.full_like(pole_angle, w)}
"""
# fails if training and evaluation, which have different numbers of environments, share a module
TRACKER = """
class Buffers: pass
BUFFERS = Buffers()
def change(buffers, actions):
    change = actions - getattr(buffers, "last", torch.zeros_like(actions))
    buffers.last = actions.clone()
    return change
def compute_observation(dof_pos, dof_vel, actions):
    return torch.cat((dof_pos, dof_vel, change(BUFFERS, actions)), dim=1)
"""
GENERATORS = {
    "numpy": ("RNG = np.random.default_rng(3)", "RNG.normal()"),
    "numpy, older": ("RNG = np.random.RandomState(3)", "RNG.normal()"),
    "Python": ("import random\nRNG = random.Random(3)", "RNG.gauss(0.0, 1.0)"),
    "torch": ("RNG = torch.Generator().manual_seed(3)", "torch.randn(1, generator=RNG)"),
    "Sobol": ("RNG = torch.quasirandom.SobolEngine(1, scramble=True, seed=3)", "RNG.draw(1)[0]"),
}
NOTE = "keeps values between calls, which --resume cannot restore"


def trained(folder, caplog, **settings):
    """Fitness of all policies, and the last mean of the component ``weight`` of each seed."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="envcoder_bench"):
        result = envcoder_bench.evaluate(
            "Cartpole", {"curriculum": CURRICULUM, "tracker": TRACKER}, output_dir=folder, device="cpu", seeds=2,
            baselines=False, num_envs_per_candidate=8, learning_iterations=4,
            overrides={
                "evaluation.points": 2, "evaluation.num_envs": 4, "evaluation.final_episodes": 4,
                "task.env.episodeLength": 60, **settings,
            },
        )  # fmt: skip
    assert list(result.results.status) == ["ok"] * 4, list(result.results.error)
    assert sum(NOTE in record.getMessage() for record in caplog.records) == 2
    points = result.points
    weight = points[(points.component == "weight") & (points.iteration == 4)]
    return list(result.results.fitness), list(weight["mean"])


def test_training_equals_that_of_plain_calls(tmp_path, caplog):
    fitness, weight = trained(tmp_path / "compiled", caplog)
    assert weight == [5.0, 5.0]
    assert (fitness, weight) == trained(tmp_path / "called", caplog, compile_shapers=False)


@pytest.mark.parametrize("name", GENERATORS)
def test_each_group_draws_from_generators_of_its_own(name, caplog):
    before, draw = GENERATORS[name]
    text = f"{before}\ndef compute_reward(pole_angle):\n    return pole_angle + {draw}\n"
    human = next(source for source in baseline_sources(find_spec("Cartpole")) if source.name == "human")
    human = CandidateSource("human", "human.py", f"{human.source}\n{text}")
    plain = "def compute_observation(pole_angle):\n    return pole_angle.unsqueeze(1)\n"
    cfg = resolve("Cartpole", ["device=cpu", "seeds=2", "num_envs_per_candidate=4"]).config
    sources = [CandidateSource("own", "own.py", text), *(CandidateSource(x, f"{x}.py", plain) for x in ("a", "b"))]
    with caplog.at_level(logging.WARNING, logger="envcoder_bench"):
        groups, failed = prepare(RunSpec.of(cfg, [*sources, human]))
    assert not failed and len(groups) == 8
    assert sum(NOTE in record.getMessage() for record in caplog.records) == 4
    assert all("reward" not in group.shaping.programs for group in groups)
    alone = {}
    exec(f"import numpy as np, torch\n{text}", alone)
    expected = [alone["compute_reward"](torch.zeros(4)) for _ in range(3)]
    for group in groups:
        reward = group.shaping.functions["reward"]
        drawn = [reward.call(torch.zeros(4)) for _ in range(3)]
        assert all(torch.equal(x, y) for x, y in zip(drawn, expected)), group.name


def test_training_and_evaluation_do_not_share_the_module_of_a_called_function():
    """What it stores on a branch that the check did not reach is its group's own."""
    text = "BOX = []\ndef compute_observation(pole_angle):\n    if bool((pole_angle > 9.0).any()):\n"
    text += "        BOX.append(1)\n    return pole_angle.unsqueeze(1)\n"
    cfg = compose_config("Cartpole", ["sim=mujoco_cpu", "device=cpu", "num_envs_per_candidate=4"])
    ((group,), failed) = prepare(RunSpec.of(cfg, [CandidateSource("own", "own.py", text)]))
    assert not failed and "observation" not in group.shaping.programs
    training, evaluation = (own.functions["observation"] for own in (group.shaping, group.evaluation))
    assert training.stateful_line is None and training.module is not evaluation.module
