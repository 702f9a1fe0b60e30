"""Descriptions of robot and training for prompts; all numbers are from the run's config."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from envcoder_bench.core.settings import Settings
from envcoder_bench.report.words import counted
from envcoder_bench.run.seeds import seed_count
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.contract import TaskContract, shown

BASELINE_MARK = "human baseline"  # part of the description of constants that only the baseline uses


def robot(facts: TaskContract, fields: Mapping[str, Field], formula: str, control: Mapping[str, Any]) -> str:
    """Describe joints, bodies, drives and the default state, one per line.

    Args:
        facts, fields: the task's contract and fields.
        formula: its ``drive_formula``.
        control: the config's ``env.control``, the numbers of the formula.
    """
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
    if formula:
        numbers = [f"{key} {shown(value)}" for key, value in control.items() if re.search(rf"\b{key}\b", formula)]
        lines.append(f"- What an action does without action function: {formula}{''.join(f'; {x}' for x in numbers)}.")
    state = [f"`{key}` {shown(value)}" for key, value in facts.default_state.items()]
    note = "where an episode begins as far as no `compute_initial_state`, yours or the baseline's, sets it"
    lines.append(f"- The default state, {note}: {'; '.join(state)}.")
    return "\n".join(lines)


def training(cfg: RunConfig, facts: TaskContract) -> str:
    """Describe a candidate's budget and episodes, and PPO's use of its reward, one per line."""
    config = cfg.train.params.config
    horizon, iterations, envs = int(config.horizon_length), cfg.learning_iterations, cfg.num_envs_per_candidate
    each = iterations * horizon
    gamma, episode = float(config.gamma), facts.max_episode_length
    seeds = f", with each of {seed_count(cfg)} seeds" if seed_count(cfg) > 1 else ""
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
        f"- Judged over {counted(cfg.evaluation.final_episodes, 'episode')}{' with each seed' * (seed_count(cfg) > 1)}."
        " Every round has seeds of its own, and both baselines train with them as well."
    )
    return "\n".join(lines)


def _reward_scale(config: Settings) -> str:
    """Describe how rewards are scaled before training."""
    shaper = dict(config.reward_shaper.items())
    scale = shown(float(shaper.pop("scale_value", 1.0)))
    more = ", ".join(f"{name} {shown(value)}" for name, value in shaper.items())
    text = f"PPO learns from it times {scale}" + (f" (and reward_shaper's {more})." if more else ".")
    if config.get("normalize_value") and config.get("normalize_advantage"):
        text += " PPO normalizes returns and advantages for each candidate: what counts is how components compare."
    return text


def baseline_constants(fields: Mapping[str, Field]) -> Sequence[str]:
    """Return the constants of the human baseline's reward, which prompts without the baseline leave out.

    Constants of actions have other descriptions: every candidate without an action function uses them.
    """
    return [key for key, field in fields.items() if field.shape is None and BASELINE_MARK in field.meaning]
