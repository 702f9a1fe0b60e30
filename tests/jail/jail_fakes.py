"""A task for the jail's tests: the ANYmal's state, a few environments."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from envcoder_bench.jail.client import JailResult, examine
from envcoder_bench.jail.confine import Limits
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sources.registry import find_spec
from envcoder_bench.tasks.base import Task

NUM_ENVS = 8


@functools.cache
def make_task(name: str = "Anymal") -> Task:
    return build_task(RunSpec.of(compose_config(name, ["sim=mujoco_cpu", "device=cpu"])), NUM_ENVS)


def state_of(task: Task) -> dict[str, Tensor]:
    """Return a copy of the task's state, as functions see it."""
    state = {key: x.clone() for key, x in task.state.items()}
    return {**state, "progress_buf": torch.ones(NUM_ENVS, dtype=torch.int64)}


def baseline_of(task: Task) -> str:
    return next(source.source for source in baseline_sources(find_spec(task.name)) if source.name == "human")


def judged(
    sources: Mapping[str, str], limits: Limits | None = None, task: str = "Anymal", **given: Any
) -> dict[str, JailResult]:
    """Examine files in the jail; return candidates or errors by name."""
    own = make_task(task)
    named = [(name, f"{name}.py", source) for name, source in sources.items()]
    width = own.default_action_dim or own.num_dofs
    return examine(named, own, state_of(own), baseline_of(own), width, limits=limits, **given)
