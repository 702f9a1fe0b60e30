"""The spec of a task of mjlab, and its folder with baselines and YAML files."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from envcoder_bench.core.errors import causes
from envcoder_bench.core.files import write_shared
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.sources.mjlab_tasks.dialect import MjlabDialect
from envcoder_bench.sources.mjlab_tasks.facts import Facts
from envcoder_bench.sources.mjlab_tasks.source import Source, described, find_source, quiet, refuse_unsupported
from envcoder_bench.sources.mjlab_tasks.words import notes_of
from envcoder_bench.sources.rsl_rl_params import rsl_rl_params
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, Field, Task
from envcoder_bench.tasks.sim_task import COMMON_KEYS, MAX_EPISODE_LENGTH
from envcoder_bench.tasks.spec import Can, TaskSpec

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
    facts = facts_of(task)
    from envcoder_bench.sources.mjlab_tasks.task import MjlabTask
    from envcoder_bench.sources.term_tasks.sections import TermSections

    source, meaning = facts.source, facts.measure.meaning
    digest = hashlib.sha256(repr((source, source.version, facts.widths, meaning)).encode()).hexdigest()[:16]
    folder = cache_folder() / "mjlab_tasks" / f"{source.name}-{digest}"
    _write(folder, facts)
    return TaskSpec(
        name=source.name,
        folder=folder,
        config=folder / "task.yaml",
        make=functools.partial(_make, facts),
        train=folder / "train.yaml",
        source=source.address,
        digest=digest,
        summary=f"mjlab's {source.task_id} ({source.version})",
        fitness_meaning=meaning,
        fitness_bounds=facts.measure.bounds,
        can=frozenset({Can.COMPILE_AHEAD}),
        config_keys=(*COMMON_KEYS, "sim.backend"),
        sections=TermSections(facts, lambda num_envs: MjlabTask(facts, {}, num_envs, "cpu")),
    )


def _make(facts: Facts, cfg: Mapping[str, Any], num_envs: int, sim: str, device: str) -> Task:
    """Build the task; ``sim.backend`` chooses its simulation."""
    from envcoder_bench.sources.mjlab_tasks.task import MjlabTask

    return MjlabTask(facts, cfg, num_envs, device)


@functools.lru_cache(maxsize=16)
def facts_of(task: str) -> Facts:
    """Find a task by its address, and learn its properties in a simulation of two environments. Raises ValueError."""
    from envcoder_bench.sim.mjlab.batch_simulation import NeedsWarp
    from envcoder_bench.sources.mjlab_tasks.fitness import measure_of

    source = find_source(task)
    from envcoder_bench.sources.mjlab_tasks.task import MjlabTask
    from envcoder_bench.sources.term_tasks.sections import SPARE_COLUMNS, SPARE_TERMS

    with quiet():
        cfg = source.env_cfg()
        refuse_unsupported(source, cfg)
        obs_sets, train = source.obs_sets(cfg.observations), _train(source, cfg.is_finite_horizon)
        widths = {**dict.fromkeys(obs_sets, 4096), "terms": 512}
        facts = Facts(
            dialect=MjlabDialect(),
            source=source,
            measure=measure_of(cfg),
            train=train,
            obs_sets=obs_sets,
            widths=widths,
            reads_rewards=True,
        )
        try:
            try:
                trial = MjlabTask(facts, {}, 2, "cpu")
            except Exception as error:
                if not any(isinstance(cause, NeedsWarp) for cause in causes(error)):
                    raise
                facts = replace(facts, needs_warp=True)
                trial = MjlabTask(facts, {}, 2, "cpu")
            trial.try_step()
            own_widths = trial.blocks[0].obs_widths()
        except Exception as error:
            raise ValueError(f"{source.address} cannot be built: {described(error, source.package)}") from error
        terms = len(trial.blocks[0].configs[0].rewards)
        widths = {**{name: width + SPARE_COLUMNS for name, width in own_widths.items()}, "terms": terms + SPARE_TERMS}
        notes = notes_of(trial.world, trial.blocks[0])
    fields, reads_rewards = _fields(widths, trial), trial.world.has_read_rewards
    return replace(facts, widths=widths, own_widths=own_widths, reads_rewards=reads_rewards, fields=fields, notes=notes)


def _fields(widths: Mapping[str, int], trial: Any) -> dict[str, Field]:
    critic = {"critic_buf": Field((widths.get("critic", 0),), "-", "the critic's observation terms; the rest is 0")}
    return {
        **trial.reader.fields(),
        "actions": Field((trial.default_action_dim,), "-", "last action of the policy; 0 where an episode begins"),
        "progress_buf": Field((), "control steps", "steps since the episode began; int64"),
        "reward_buf": Field((), "-", "sum of the group's reward terms, as mjlab's reward manager computes it"),
        "reward_terms": Field((widths["terms"],), "-", "the group's reward terms with weights, in their order"),
        "obs_buf": Field((widths["actor"],), "-", "the actor's observation terms with noise; the rest is 0"),
        **(critic if "critic" in widths else {}),
        "reset_buf": Field((), "-", "whether a termination term ends the episode; bool"),
        "score": Field((), "-", "fitness of the step"),
        "max_episode_length": MAX_EPISODE_LENGTH,
    }


def _write(folder: Path, facts: Facts) -> None:
    """Write a task's folder: both baselines and the YAML files."""
    from envcoder_bench.sources.term_tasks.sections import functions_text

    source = facts.source
    cfg = source.env_cfg()
    names = list(cfg.rewards)
    weights = "".join(f"    {json.dumps(name)}: {float(term.weight)!r},\n" for name, term in cfg.rewards.items())
    text = functions_text(names, facts.own_widths, lambda name: False)
    rest = functions_text(names, facts.own_widths, lambda name: name == "compute_reward")
    scale = cfg.decimation * cfg.sim.mujoco.timestep if cfg.scale_rewards_by_dt else 1.0  # that of the rewards
    unshaped = _UNSHAPED.format(address=source.address, meaning=facts.measure.meaning, scale=round(scale, 9))
    files = {
        f"{HUMAN}.py": _HUMAN.format(address=source.address, weights=weights) + text,
        f"{UNSHAPED}.py": unshaped + rest,
        "task.yaml": yaml.safe_dump({"name": source.name, "sim": {"backend": "auto"}}, sort_keys=False),
        "train.yaml": yaml.safe_dump(facts.train, sort_keys=False),
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
