"""Which tiles a policy crosses, of every type and level of a terrain task's grid; and the levels of a training."""

from __future__ import annotations

import math
import sys
from argparse import Namespace
from typing import Any, Callable, Iterator

import torch
from torch import Tensor

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.prepare import prepare
from envcoder_bench.run.run_task import build_task
from envcoder_bench.terrain.grid import TYPES

from . import records
from .finer import players
from .records import Record
from .session import find_sources, make_config


def crossings(args: Namespace) -> Iterator[Record]:
    """Send robots from the middle of their tiles along an axis; count those that leave the tile without a fall."""
    if not args.policy.is_file():
        sys.exit(f"--policy {args.policy}: there is no such file")
    cfg = make_config(args, num_envs_per_candidate=args.episodes, seeds=1)
    groups, failed = prepare(cfg, find_sources(args.task, [args.candidate]))
    if failed:
        sys.exit("\n".join(f"{name} failed: {error}" for name, error in failed.items()))
    layout = GroupLayout(1, args.episodes)
    task = build_task(cfg, layout.num_envs)
    if getattr(task, "grid", None) is None:
        sys.exit(f"--task {args.task}: it has no grid of terrains, or task.env.terrain.terrainType is plane")
    env = GroupedVecTask(task, layout, [groups[0].evaluation], [groups[0].seed])
    steps = math.ceil(args.seconds / float(env.task.dt))
    half_tile = 0.5 * float(cfg.task.env.terrain.mapLength)
    crossed, fell = cross(env, players(cfg, env, [args.policy]), half_tile, args.speed, steps)
    yield {
        "kind": "crossings", "task": args.task, "candidate": groups[0].name, "sim": cfg.sim, "episodes": args.episodes,
        "speed": args.speed, "seconds": args.seconds, "overrides": list(args.overrides),
        "tiles": by_tile(task, {"crossed": crossed, "fell": fell}), **records.describe(cfg.device),
    }  # fmt: skip


def cross(
    env: GroupedVecTask, policy: Callable[[Tensor], Tensor], half_tile: float, speed: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Return which robots left their tile, and which fell before that, ``(num_envs,)`` each.

    A robot leaves its tile where it is more than ``half_tile``, m, from its middle along x or y. The command is
    ``speed``, m/s, forward, with a heading along +x, +y, -x or -y in turn.
    """
    env.begin_all(EVALUATION_STEP)
    task: Any = env.task
    state = env.state
    lanes = torch.arange(env.num_envs, device=env.device)
    headings = (0.5 * math.pi) * torch.tensor([0.0, 1.0, 2.0, -1.0], device=env.device)
    state["commands"][:, :3] = torch.tensor([speed, 0.0, 0.0], device=env.device)
    # lanes are spread over types and levels in an order that has no period of four
    state["commands"][:, 3] = headings[lanes % 4]
    active = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    crossed, fell, none = ~active, ~active, ~active
    obs = env.observe(active)
    for step in range(steps):
        env.advance(policy(obs), active)
        over = env.dispatch.terminal(env.step_count, active) | task.unstable
        offset = (state["root_states"][:, :2] - state["env_origins"][:, :2]).abs().amax(dim=1)
        fell |= active & over
        crossed |= active & ~over & (offset > half_tile)
        active = active & ~(fell | crossed)
        env.step_count += 1
        if step % 50 == 49 and not bool(active.any()):
            break
        env.begin_episodes(none)
        obs = env.observe(active)
    return crossed, fell


def by_tile(task: Any, flags: dict[str, Tensor]) -> dict[str, dict[str, list[float | None]]]:
    """Return for each type the robots of each level, and the share of them for which each flag is True."""
    columns, levels = (task.state[key].long().cpu() for key in ("terrain_types", "terrain_levels"))
    kinds = torch.tensor(task.grid.types)[columns]
    tiles: dict[str, dict[str, list[float | None]]] = {}
    for kind in sorted(set(task.grid.types)):
        own = [(kinds == kind) & (levels == level) for level in range(len(task.grid.origins))]
        shares = {key: [_share(flag.cpu()[rows]) for rows in own] for key, flag in flags.items()}
        tiles[TYPES[kind]] = {"robots": [int(rows.sum()) for rows in own], **shares}
    return tiles


def _share(flags: Tensor) -> float | None:
    return None if flags.numel() == 0 else float(flags.double().mean())


def levels_of(task: Any, layout: GroupLayout) -> dict[str, list[float | None]] | None:
    """Return the mean level of each group's environments, for each type; None for a task without a curriculum.

    legged_gym's tasks have levels in their state, and types that only their own code knows: the mean is over all.
    """
    if not hasattr(task, "grid") and "terrain_levels" in getattr(task, "state", {}):
        return {"all": layout.split(task.state["terrain_levels"].double()).mean(dim=1).tolist()}
    if not getattr(task, "curriculum", False):
        return None
    kinds = torch.tensor(task.grid.types)[task.state["terrain_types"].long().cpu()]
    levels = task.state["terrain_levels"].cpu()
    return {
        TYPES[kind]: [_share(levels[layout.slice(g)][kinds[layout.slice(g)] == kind]) for g in range(layout.num_groups)]
        for kind in sorted(set(task.grid.types))
    }
