"""The spec of a task of mjlab."""

from __future__ import annotations

import functools
from dataclasses import asdict, replace
from typing import Any

from envcoder_bench.core.errors import causes
from envcoder_bench.sources.mjlab_tasks.dialect import MjlabDialect
from envcoder_bench.sources.mjlab_tasks.facts import Facts
from envcoder_bench.sources.mjlab_tasks.source import Source, described, find_source, quiet, refuse_unsupported
from envcoder_bench.sources.mjlab_tasks.words import names_of
from envcoder_bench.sources.rsl_rl_params import rsl_rl_params
from envcoder_bench.tasks.spec import Can, TaskSpec


@functools.lru_cache(maxsize=16)
def mjlab_spec(task: str) -> TaskSpec:
    """Find a task by its address, and build it once in a small simulation. Raises ValueError."""
    facts = facts_of(task)
    from envcoder_bench.sources.mjlab_tasks.task import MjlabTask, is_before_warp
    from envcoder_bench.sources.term_tasks.spec import spec_of

    source = facts.source
    key, title = repr((source, source.version)), f"mjlab's {source.task_id} ({source.version})"
    keys = ("name", "sim.backend", "sim.substeps", "sim.contacts")
    both = set() if facts.needs_warp or is_before_warp() else {Can.BOTH_BACKENDS}
    return spec_of(facts, MjlabTask, key, title, keys, {Can.CONTACTS, Can.HALF_STEP, *both})


@functools.lru_cache(maxsize=16)
def facts_of(task: str) -> Facts:
    """Find a task by its address, and learn its properties in a simulation of two environments. Raises ValueError."""
    from envcoder_bench.sim.mjlab.batch_simulation import NeedsWarp
    from envcoder_bench.sources.term_tasks.fitness import measure_of

    source = find_source(task)
    from envcoder_bench.sources.mjlab_tasks.task import MjlabTask
    from envcoder_bench.sources.term_tasks.spec import learned

    def make(facts: Facts, num_envs: int) -> MjlabTask:
        return MjlabTask(facts, {}, num_envs, "cpu")

    with quiet():
        cfg, dialect = source.env_cfg(), MjlabDialect()
        refuse_unsupported(source, cfg)
        facts = Facts(
            dialect=dialect,
            source=source,
            measure=measure_of(dialect, cfg),
            train=_train(source, cfg.is_finite_horizon),
            obs_sets=source.obs_sets(cfg.observations),
        )
        try:
            try:
                return learned(facts, make, names_of)
            except Exception as error:
                if not any(isinstance(cause, NeedsWarp) for cause in causes(error)):
                    raise
                return learned(replace(facts, needs_warp=True), make, names_of)
        except Exception as error:
            raise ValueError(f"{source.address} cannot be built: {described(error, source.package)}") from error


def _train(source: Source, finite: bool) -> dict[str, Any]:
    """Return mjlab's PPO settings in the schema of rl_games; ``finite``: a time-out ends the task itself."""
    runner = source.rl_cfg()
    try:
        settings = rsl_rl_params(asdict(runner))
    except ValueError as error:
        raise ValueError(f"{source.address}: {error}") from None
    settings["params"]["config"]["value_bootstrap"] = not finite
    return settings
