"""Make a registry entry of a task of mjlab: its class, and a folder with baselines and YAML files."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from envcoder_bench.core.files import write_shared
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, Field
from envcoder_bench.tasks.mjlab_tasks.source import Source, causes, described, find_source, quiet, refuse_unsupported
from envcoder_bench.tasks.mjlab_tasks.words import notes_of
from envcoder_bench.tasks.rsl_rl_params import rsl_rl_params
from envcoder_bench.tasks.sim_task import MAX_EPISODE_LENGTH
from envcoder_bench.tasks.spec import TaskSpec

_HUMAN = '''"""{address}, the task's registered terms and weights."""

rewards = {{
{weights}}}


'''
_UNSHAPED = '''"""{address}, the unshaped baseline: the fitness is the reward; the rest is the task's own."""


def compute_reward(score):
    """{meaning}"""
    return {scale} * score


'''


@functools.lru_cache(maxsize=16)
def mjlab_spec(task: str) -> TaskSpec:
    """Find a task by its address, and build it once in a small simulation. Raises ValueError."""
    source = find_source(task)
    with quiet():
        cfg = source.env_cfg()
        refuse_unsupported(source, cfg)
        train = _train(source, cfg.is_finite_horizon)
        task_class = _measured_class(source, cfg)
    digest = hashlib.sha256(repr((source, source.version, task_class.widths, task_class.fitness_meaning)).encode())
    folder = cache_folder() / "mjlab_tasks" / f"{source.name}-{digest.hexdigest()[:16]}"
    _write(folder, source, task_class, train)
    return TaskSpec(
        folder, task_class, folder / "task.yaml", folder / "train.yaml", source.address, digest.hexdigest()[:16]
    )


def _measured_class(source: Source, cfg: Any) -> Any:
    """Return a task's class with what a simulation of two environments shows: widths, keys of the state."""
    from envcoder_bench.sim.mjlab.batch_simulation import NeedsWarp
    from envcoder_bench.tasks.mjlab_tasks.fitness import measure_of
    from envcoder_bench.tasks.mjlab_tasks.task import SPARE_COLUMNS, SPARE_TERMS, MjlabTask

    measure, obs_sets = measure_of(cfg), source.obs_sets(cfg.observations)
    attributes: dict[str, Any] = {
        "__doc__": f"mjlab's {source.task_id} ({source.version})",
        "name": source.name,
        "model": "model.xml",
        "source": source,
        "measure": measure,
        "fitness_meaning": measure.meaning,
        "fitness_reduction": measure.reduction,
        "fitness_bounds": measure.bounds,
        "fields": {},
        "widths": {**dict.fromkeys(obs_sets, 4096), "terms": 512},
        "obs_sets": obs_sets,
    }
    try:
        try:
            probe = type(source.name, (MjlabTask,), attributes)({}, 2, "cpu")
        except Exception as error:
            if not any(isinstance(cause, NeedsWarp) for cause in causes(error)):
                raise
            attributes["needs_warp"] = True
            probe = type(source.name, (MjlabTask,), attributes)({}, 2, "cpu")
        own = probe.blocks[0].obs_widths()
    except Exception as error:
        raise ValueError(f"{source.address} cannot be built: {described(error, source.package)}") from error
    terms = len(probe.blocks[0].configs[0].rewards)
    attributes.update(
        widths={**{name: width + SPARE_COLUMNS for name, width in own.items()}, "terms": terms + SPARE_TERMS},
        own_widths=own,
        default_action_dim=probe.default_action_dim,
    )
    attributes["fields"] = _fields(attributes["widths"], probe)
    attributes["notes"] = notes_of(probe.world, probe.blocks[0])
    return type(source.name, (MjlabTask,), attributes)


def _fields(widths: dict[str, int], probe: Any) -> dict[str, Field]:
    critic = {"critic_buf": Field((widths.get("critic", 0),), "-", "the critic's observation terms; the rest is 0")}
    return {
        **probe.reader.fields(),
        "actions": Field((probe.default_action_dim,), "-", "last action of the policy; 0 where an episode begins"),
        "progress_buf": Field((), "control steps", "steps since the episode began; int64"),
        "reward_buf": Field((), "-", "sum of the group's reward terms, as mjlab's reward manager computes it"),
        "reward_terms": Field((widths["terms"],), "-", "the group's reward terms with weights, in their order"),
        "obs_buf": Field((widths["actor"],), "-", "the actor's observation terms with noise; the rest is 0"),
        **(critic if "critic" in widths else {}),
        "reset_buf": Field((), "-", "whether a termination term ends the episode; bool"),
        "score": Field((), "-", "fitness of the step"),
        "max_episode_length": MAX_EPISODE_LENGTH,
    }


def _write(folder: Path, source: Source, task_class: Any, train: dict[str, Any]) -> None:
    """Write a task's folder: both baselines and the YAML files, of which ``train`` is one."""
    from envcoder_bench.tasks.mjlab_tasks.patches import functions_text

    cfg = source.env_cfg()
    names = list(cfg.rewards)
    weights = "".join(f"    {json.dumps(name)}: {float(term.weight)!r},\n" for name, term in cfg.rewards.items())
    text = functions_text(names, task_class.own_widths, lambda name: False)
    rest = functions_text(names, task_class.own_widths, lambda name: name == "compute_reward")
    scale = cfg.decimation * cfg.sim.mujoco.timestep if cfg.scale_rewards_by_dt else 1.0  # as of the registered reward
    unshaped = _UNSHAPED.format(address=source.address, meaning=task_class.fitness_meaning, scale=round(scale, 9))
    files = {
        f"{HUMAN}.py": _HUMAN.format(address=source.address, weights=weights) + text,
        f"{UNSHAPED}.py": unshaped + rest,
        "task.yaml": yaml.safe_dump({"name": source.name, "sim": {"backend": "auto"}}, sort_keys=False),
        "train.yaml": yaml.safe_dump(train, sort_keys=False),
    }
    for name, content in files.items():
        write_shared(folder / name, content)


def _train(source: Source, finite: bool) -> dict[str, Any]:
    """Return mjlab's PPO settings in the schema of rl_games; ``finite``: a time-out ends the task itself."""
    runner = source.rl_cfg()
    try:
        settings = rsl_rl_params(asdict(runner))
    except ValueError as error:
        raise ValueError(f"{source.address}: {error}") from None
    settings["params"]["config"]["value_bootstrap"] = not finite
    return settings
