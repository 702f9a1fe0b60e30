"""The robot and the training of a search in a prompt's words. All numbers are those of the config that trains."""

from __future__ import annotations

from typing import Mapping, Sequence

from omegaconf import DictConfig

from envcoder_bench.report.words import counted
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.contract import TaskContract, shown

OF_BASELINE = "human baseline"  # in the meaning of a constant that only the baseline's formulas are made of


def robot(facts: TaskContract, fields: Mapping[str, Field]) -> str:
    """Joints, bodies, drives and the default state, a line each."""
    bodies = [f"{k} {name}" for k, name in enumerate(facts.bodies)]
    lines = [f"- Joints, in the order of `dof_pos`: {', '.join(facts.joints)}."]
    lines.append(
        f"- Bodies{', by their index in `contact_forces`' * ('contact_forces' in fields)}: {', '.join(bodies)}."
    )
    lines += [f"- Sensors: {', '.join(facts.sensors)}."] if facts.sensors else []
    lines += [f"- Sites: {', '.join(facts.sites)}."] if facts.sites else []
    if facts.drives:
        units = {"stiffness": "N m/rad", "damping": "N m s/rad"}
        gains = [f"{name} {shown(value)} {units[name]}" for name, value in facts.drives.items()]
        lines.append(f"- Its position drives: {', '.join(gains)}.")
    state = [f"`{key}` {shown(value)}" for key, value in facts.default_state.items()]
    told = "where an episode begins as far as no `compute_initial_state`, yours or the baseline's, sets it"
    lines.append(f"- The default state, {told}: {'; '.join(state)}.")
    return "\n".join(lines)


def training(cfg: DictConfig, facts: TaskContract) -> str:
    """The budget of a candidate, its episodes, and what PPO makes of its reward, a line each."""
    config = cfg.train.params.config
    horizon, iterations, envs = int(config.horizon_length), cfg.learning_iterations, cfg.num_envs_per_candidate
    each = iterations * horizon
    gamma, episode = float(config.gamma), facts.max_episode_length
    seeds = f", with each of {cfg.seeds} seeds" if cfg.seeds > 1 else ""
    control = f"{counted(facts.substeps, 'physics step')}, {1 / facts.dt:.4g} control steps a second"
    lines = [
        f"- Time: a control step lasts {facts.dt:.5g} s ({control}). An episode lasts"
        f" {counted(episode, 'control step')} at most, {episode * facts.dt:.4g} s.",
        f"- Budget of a candidate{seeds}: {counted(envs, 'environment')} x {counted(iterations, 'iteration')} of"
        f" {counted(horizon, 'control step')} and one PPO update each. So an environment plays"
        f" {counted(each, 'control step')}, {each * facts.dt:.4g} s or {each / episode:.3g} full episodes;"
        f" all together play {counted(each * envs, 'control step')}.",
    ]
    if 0 < gamma < 1:
        ahead = 1 / (1 - gamma)
        lines.append(
            f"- Discount: gamma {gamma:g} for each control step: what comes {ahead:.3g} control steps"
            f" ({ahead * facts.dt:.3g} s) later counts {gamma**ahead:.2g} of what comes now."
        )
    else:
        lines.append(f"- Discount: gamma {gamma:g} for each control step.")
    lines.append(f"- Reward: {_reward_scale(config)}")
    lines.append(
        f"- Judged over {counted(cfg.evaluation.final_episodes, 'episode')}{' with each seed' * (cfg.seeds > 1)}."
        " Every round has seeds of its own, and both baselines train with them as well."
    )
    return "\n".join(lines)


def _reward_scale(config: DictConfig) -> str:
    """What becomes of a reward before a policy learns from it."""
    shaper = dict(config.reward_shaper.items())
    scale = shown(float(shaper.pop("scale_value", 1.0)))
    more = ", ".join(f"{name} {shown(value)}" for name, value in shaper.items())
    text = f"PPO learns from it times {scale}" + (f" (and reward_shaper's {more})." if more else ".")
    if config.get("normalize_value") and config.get("normalize_advantage"):
        text += " PPO normalizes returns and advantages for each candidate: what counts is how components compare."
    return text


def of_the_baseline(fields: Mapping[str, Field]) -> Sequence[str]:
    """The keys of constants that tell of the human baseline's formulas, which a prompt without it leaves out."""
    found: list[str] = [key for key, field in fields.items() if field.shape is None and OF_BASELINE in field.meaning]
    return found
