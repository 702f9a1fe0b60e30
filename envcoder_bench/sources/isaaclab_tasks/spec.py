"""The spec of a task of Isaac Lab."""

from __future__ import annotations

import functools
from typing import Any

from envcoder_bench.sources.isaaclab_tasks.dialect import IsaacLabDialect
from envcoder_bench.sources.isaaclab_tasks.source import Source, described, find_source, refuse_unsupported
from envcoder_bench.sources.rsl_rl_params import rsl_rl_params
from envcoder_bench.sources.term_tasks.quiet import quiet
from envcoder_bench.tasks.spec import TaskSpec


@functools.lru_cache(maxsize=16)
def isaaclab_spec(task: str) -> TaskSpec:
    """Find a task by its address, and build it once in a small simulation. Raises ValueError."""
    source = find_source(task)
    if source.is_direct or source.is_own:
        from envcoder_bench.sources.isaaclab_tasks.direct_spec import direct_spec

        finite = bool(getattr(source.own_environment()[0], "is_finite_horizon", False))
        return direct_spec(source, _train(source, finite), _limit(source))
    facts = facts_of(task)
    from envcoder_bench.sources.isaaclab_tasks.task import IsaacLabTask
    from envcoder_bench.sources.term_tasks.spec import spec_of

    title = f"Isaac Lab's {source.task_id} ({source.version}), on MuJoCo"
    return spec_of(facts, IsaacLabTask, repr((source, source.version)), title, ("name",))


@functools.lru_cache(maxsize=16)
def facts_of(task: str) -> Any:
    """Find a task by its address, and learn its properties in a simulation of two environments. Raises ValueError."""
    from envcoder_bench.sources.term_tasks.fitness import measure_of

    source = find_source(task)
    from envcoder_bench.sources.isaaclab_tasks.facts import Facts
    from envcoder_bench.sources.isaaclab_tasks.task import IsaacLabTask
    from envcoder_bench.sources.isaaclab_tasks.words import names_of
    from envcoder_bench.sources.term_tasks.spec import learned

    dialect = IsaacLabDialect()
    with quiet():
        cfg = source.env_cfg()
        refuse_unsupported(source, cfg)
        facts = Facts(
            dialect=dialect,
            source=source,
            measure=measure_of(dialect, cfg),
            train=_train(source, cfg.is_finite_horizon),
            obs_sets=source.obs_sets(cfg.observations),
            clip_actions=_limit(source),
        )
        try:
            return learned(facts, lambda facts, num_envs: IsaacLabTask(facts, {}, num_envs, "cpu"), names_of)
        except Exception as error:
            raise ValueError(f"{source.address} cannot be built: {described(error, source.package)}") from error


def _limit(source: Source) -> float:
    """Return the limit of actions, of the runner's config."""
    return float(source.rl_cfg().get("clip_actions") or "inf")


def _train(source: Source, finite: bool) -> dict[str, Any]:
    """Return the settings of PPO in the schema of rl_games; ``finite``: a time-out ends the task itself."""
    try:
        settings = rsl_rl_params(source.rl_cfg())
    except ValueError as error:
        raise ValueError(f"{source.address}: {error}") from None
    settings["params"]["config"]["value_bootstrap"] = not finite
    return settings
