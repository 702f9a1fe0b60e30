"""Short rollouts of candidates, to see the values of their rewards and of the components."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from envcoder_bench.core import noise
from envcoder_bench.run.prepare.environments import build_env
from envcoder_bench.run.prepare.groups import PrepareContext, check_and_trace, make_group
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.shaping.contract import Shaping
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

ENVS, STEPS = 64, 48  # of each rollout


def rollout(
    spec: RunSpec, context: PrepareContext, source: CandidateSource, shaping: Shaping
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the reward and its components ``(states,)`` on states of short rollouts with random actions.

    The environments of a rollout reach from no action to the strongest ones, and each has a direction of its own. Three
    rollouts have the shaping of the candidate, and its reward with those of both baselines.

    Args:
        spec: a run in the small simulation that ``context`` was made with.
        shaping: the candidate's, checked.

    Raises:
        CandidateError: the candidate failed.
    """
    seed = spec.config.seed

    def group(one: CandidateSource, checked: Shaping) -> Shaping:
        return replace(make_group(one, checked, context.unshaped, context.files, seed).shaping, programs={})

    # its own shaping, and its reward with those of both baselines
    shapings = [group(source, shaping)]
    for name in (HUMAN, UNSHAPED):
        baseline = context.files.baselines[name]
        if name == source.name:
            continue
        other = group(baseline, check_and_trace(baseline, context, seed))
        if other.action_dim == shaping.action_dim:
            reward = group(source, shaping).functions["reward"]
            mixed = replace(other, functions={**other.functions, "reward": reward}, components=shaping.components)
            shapings.append(mixed)
    env = build_env(spec, shapings, [seed] * len(shapings), ENVS)
    env.reset()
    # from standing still to full strength, each lane around an action of its own
    strength = torch.linspace(0.0, 1.0, ENVS, device=env.device).repeat(len(shapings)).unsqueeze(1)
    shape = (ENVS, env.actions.shape[1])

    def drawn(step: int) -> torch.Tensor:
        return (2.0 * noise.uniform(seed, step, noise.ACTION, *shape, env.device) - 1.0).repeat(len(shapings), 1)

    middle, parts = drawn(0), []
    for step in range(1, STEPS + 1):
        env.dispatch.clear_components()
        env.step(strength * (0.5 * middle + 0.5 * drawn(step)))
        rows = [env.dispatch.component_rows(g) for g in range(len(shapings)) if g not in env.failures]
        parts.append([torch.stack([total[0], *(x[0] for x in named.values())]).cpu() for total, named in rows])
    env.dispatch.poll()
    if 0 in env.failures:
        raise env.failures[0]
    table = torch.cat([torch.cat(rows, dim=1) for rows in parts], dim=1).double().numpy()
    return table[0], dict(zip(shaping.components, table[1:]))
