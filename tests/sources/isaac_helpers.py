"""Common parts of the tests of Isaac Gym tasks: configs, groups, environments and random play."""

from pathlib import Path

import torch

import isaacgym_mujoco.api.gymapi  # noqa: F401  MuJoCo starts a process where it is first imported
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.registry import find_spec

FOLDER = Path(__file__).parent / "isaac_task"
PENDULUM = f"{FOLDER}/pendulum.py:Rod"
SETTINGS = ("num_envs_per_candidate=4", "compile_shapers=false", "device=cpu", "sim=mujoco_cpu")
SMALL = (*SETTINGS, "train.params.config.horizon_length=8", "train.params.config.num_minibatches=1")


def config(task=PENDULUM, *overrides):
    return compose_config(task, [*SMALL, *overrides])


def groups(cfg, **texts):
    """The human baseline, and candidates by name; and the faults of those that cannot be used."""
    sources = baseline_sources(find_spec(cfg.address), cfg.task)[:1]
    return prepare(
        RunSpec.of(cfg, sources + [CandidateSource(name, f"{name}.py", text) for name, text in texts.items()])
    )


def environment(cfg, made, seeds=None, evaluation=False):
    shapings = [group.evaluation if evaluation else group.shaping for group in made]
    return build_env(RunSpec.of(cfg), shapings, seeds or [0] * len(made), cfg.num_envs_per_candidate)


def played(env, steps, seed=0):
    """Yield the results of steps with random actions."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield env.step(2.0 * torch.rand(env.actions.shape, generator=generator) - 1.0)


def human_env(task=PENDULUM, *overrides, count=1):
    """Return an environment of groups of one seed with the human baseline."""
    cfg = config(task, *overrides)
    (human,), faults = groups(cfg)
    assert not faults
    return environment(cfg, [human] * count)


def begun(task=PENDULUM, *overrides, count=1):
    """Return a ``human_env`` whose episodes have begun."""
    env = human_env(task, *overrides, count=count)
    env.reset()
    return env


def stepped(env, steps, action=0.0):
    """Return the result of the last of some steps with one action for all."""
    for _ in range(steps):
        step = env.step(torch.full(env.actions.shape, float(action)))
    return step
