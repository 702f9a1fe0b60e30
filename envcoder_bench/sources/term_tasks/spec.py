"""The spec of a task of terms, its folder with baselines and YAML files, and what a small simulation shows of it."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from envcoder_bench.core.files import write_shared
from envcoder_bench.core.folders import cache_folder
from envcoder_bench.sources.term_tasks.facts import TermFacts
from envcoder_bench.sources.term_tasks.sections import SPARE_COLUMNS, SPARE_TERMS, TermSections, functions_text
from envcoder_bench.sources.term_tasks.task import TermTask
from envcoder_bench.sources.term_tasks.words import sections_in_words
from envcoder_bench.tasks.base import HUMAN, UNSHAPED, Field
from envcoder_bench.tasks.sim_task import MAX_EPISODE_LENGTH
from envcoder_bench.tasks.spec import Can, Config, TaskSpec

F = TypeVar("F", bound=TermFacts)
UNKNOWN_WIDTHS = {"actor": 4096, "critic": 4096, "terms": 512}  # until a simulation shows them

_HUMAN = '''"""{address}, the task's registered terms and weights."""

rewards = {{
{weights}}}


'''
_UNSHAPED = '''"""{address}, the unshaped baseline: the fitness is the reward; the rest is the task's own."""


def compute_reward(score):
    """{meaning}"""
    return {scale} * score


'''


def learned(facts: F, make: Callable[[F, int], TermTask], names: Callable[[Any], Iterable[str]]) -> F:
    """Return the facts of a task with what two environments show in a step.

    Args:
        make: builds the task with a number of environments.
        names: returns lines on the scene of a world: the order of joints, bodies and columns.
    """
    widths = {name: UNKNOWN_WIDTHS[name] for name in (*facts.obs_sets, "terms")}
    facts = replace(facts, widths=widths, reads_rewards=True)
    trial = make(facts, 2)
    trial.try_step()
    block = trial.blocks[0]
    own_widths, terms = block.observations.widths(), len(facts.dialect.terms(block.configs[0], "rewards"))
    widths = {**{name: width + SPARE_COLUMNS for name, width in own_widths.items()}, "terms": terms + SPARE_TERMS}
    notes = "\n".join(f"- {line}" for line in (*names(trial.world), *sections_in_words(block)))
    reads = trial.world.has_read_rewards
    fields = _fields(widths, trial)
    return replace(facts, widths=widths, own_widths=own_widths, reads_rewards=reads, fields=fields, notes=notes)


def spec_of(
    facts: F,
    make: Callable[[F, Config, int, str], TermTask],
    key: str,
    title: str,
    config_keys: tuple[str, ...],
    can: Collection[Can] = (),
) -> TaskSpec:
    """Write the folder of a task, and return its spec.

    Args:
        make: builds the task from its config, a number of environments and a device.
        key: what its digest is made of.
        title: the framework and the task in it.
        can: what the framework's tasks can do besides.
    """
    digest = hashlib.sha256(repr((key, facts.widths, facts.measure.meaning)).encode()).hexdigest()[:16]
    folder = cache_folder() / f"{facts.dialect.package}_tasks" / f"{facts.name}-{digest}"
    _write(folder, facts, config_keys)
    return TaskSpec(
        name=facts.name,
        folder=folder,
        config=folder / "task.yaml",
        make=functools.partial(_made, make, facts),
        train=folder / "train.yaml",
        action_bound=2.0,  # these frameworks do not clip actions, and their policies exceed 1
        source=facts.address,
        digest=digest,
        summary=title,
        fitness_meaning=facts.measure.meaning,
        fitness_bounds=facts.measure.bounds,
        can=frozenset({Can.COMPILE_AHEAD, *can}),
        config_keys=config_keys,
        sections=TermSections(facts, lambda num_envs: make(facts, {}, num_envs, "cpu")),
    )


def _made(make: Callable[..., TermTask], facts: Any, cfg: Config, num_envs: int, sim: str, device: str) -> TermTask:
    return make(facts, cfg, num_envs, device)


def _fields(widths: Mapping[str, int], trial: TermTask) -> dict[str, Field]:
    name = trial.world.dialect.name
    critic = {"critic_buf": Field((widths.get("critic", 0),), "-", "the critic's observation terms; the rest is 0")}
    return {
        **trial.reader.fields(),
        "actions": Field((trial.num_dofs,), "-", "last action of the policy; 0 where an episode begins"),
        "progress_buf": Field((), "control steps", "steps since the episode began; int64"),
        "reward_buf": Field((), "-", f"sum of the group's reward terms, as {name}'s reward manager computes it"),
        "reward_terms": Field((widths["terms"],), "-", "its reward terms with weights, in their order; the rest is 0"),
        "obs_buf": Field((widths["actor"],), "-", "the actor's observation terms with noise; the rest is 0"),
        **(critic if "critic" in widths else {}),
        "reset_buf": Field((), "-", "whether a termination term ends the episode; bool"),
        "score": Field((), "-", "fitness of the step"),
        "max_episode_length": MAX_EPISODE_LENGTH,
    }


def _write(folder: Path, facts: TermFacts, config_keys: tuple[str, ...]) -> None:
    """Write a task's folder: both baselines and the YAML files."""
    cfg, get = facts.env_cfg(), facts.dialect.get
    rewards = facts.dialect.terms(cfg, "rewards")
    weights = "".join(f"    {json.dumps(x)}: {float(get(term, 'weight'))!r},\n" for x, term in rewards.items())
    text = functions_text(list(rewards), facts.own_widths, lambda name: False)
    rest = functions_text(list(rewards), facts.own_widths, lambda name: name == "compute_reward")
    scale = facts.dialect.reward_scale(cfg, facts.dialect.step_dt(cfg))
    unshaped = _UNSHAPED.format(address=facts.address, meaning=facts.measure.meaning, scale=round(scale, 9))
    task: dict[str, Any] = {"name": facts.name}
    if "sim.backend" in config_keys:
        task["sim"] = {"backend": "auto", "substeps": 1}
    files = {
        f"{HUMAN}.py": _HUMAN.format(address=facts.address, weights=weights) + text,
        f"{UNSHAPED}.py": unshaped + rest,
        "task.yaml": yaml.safe_dump(task, sort_keys=False),
        "train.yaml": yaml.safe_dump(facts.train, sort_keys=False),
    }
    for name, content in files.items():
        write_shared(folder / name, content)
