"""The episodes of the grid, played by all policies at once, in a simulation that becomes smaller as they end.

On a CPU groups whose episodes have all ended leave the simulation. On CUDA the other groups also keep only as many
environments as the longest lived of them needs: that changes the shapes of tensors, and so their last bits.
A function that keeps values would lose them there: with one of them all stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from envcoder_bench.core.errors import is_out_of_memory
from envcoder_bench.core.noise import EVALUATION_STEP
from envcoder_bench.env.evaluation import of_episodes, step_fitness
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.shaping.contract import CandidateFunction, Fault
from envcoder_bench.shaping.kinds import KINDS, NEW_EPISODE
from envcoder_bench.stress.disturbed_env import DisturbedEnv
from envcoder_bench.stress.motion import Motion

LOOK = 50  # control steps between looks for ended episodes, each a wait for the device
SHARE = 0.7  # a smaller simulation has at most this share of the environments
# env-steps in the time in which a simulation is built: a smaller one must save more
WORTH = {"cpu": 20_000, "cuda": 5_000_000}
_OF_TORCH = vars(nn.Module()).keys() - {"training"}  # attributes of all modules, without values of their own
Build = Callable[[Sequence[int], Tensor | None], DisturbedEnv]
log = logging.getLogger(__name__)


@dataclass
class Played:
    """The episodes of all groups.

    Attributes:
        fitness: ``(groups, lanes)``, as of ``Episodes``.
        whole: whether the episodes did not end early, ``(groups, lanes)``.
        failures: by group.
        notes: lines on what the task does not notice.
        unmeasured: what the task's own terms read that a robot does not measure, by group.
    """

    fitness: Tensor
    whole: Tensor
    motion: Motion
    failures: dict[int, Fault]
    notes: list[str]
    unmeasured: list[Collection[str]]


@torch.no_grad()
def play(build: Build, modules: Sequence[nn.Module], milliseconds: int) -> Played:
    """Play an episode of each lane in each group, as ``run_episodes`` does.

    Args:
        build: return an environment of some groups with the lanes of each, ``(groups, lanes)``; None: all of them.
        modules: a policy for each group.
        milliseconds: length of an episode; 0: full ones.
    """
    groups: Sequence[int] = range(len(modules))
    env = build(groups, None)
    layout, steps, motion, failures = env.layout, env.full_episode, Motion(env), {}
    notes, unmeasured = env.notes, [env.task.unmeasured(g) for g in groups]
    if milliseconds:
        steps = min(steps, max(1, round(milliseconds / (1000.0 * env.task.dt))))
    act, obs = acting(env, modules), env.begin_all(EVALUATION_STEP)
    env.dispatch.recheck()
    rows = torch.arange(env.num_envs, device=env.device)  # places in the first environment
    fitness, whole = torch.zeros(env.num_envs, device=env.device), torch.zeros_like(rows, dtype=torch.bool)
    # a new simulation calls the functions, which would overwrite what they keep
    active, may_shrink = torch.ones_like(whole), not any(x.stateful_line for x in _functions(env))
    for t in range(steps):
        env.advance(act(obs), active)
        ended = env.dispatch.terminal(env.step_count, active) | env.task.unstable
        motion.step(t, active, ended)
        active = active & ~ended
        fitness[rows] += torch.where(active, step_fitness(env, active), 0.0)
        env.step_count += 1
        looks = t % LOOK == LOOK - 1
        if t == steps - 1 or ((looks or env.device.type == "cpu") and not bool(active.any())):
            break
        env.begin_episodes(env.cut_short(ended))
        obs = env.observe(active)
        if not (looks and may_shrink) or (left := _left(env, active, steps - 1 - t)) is None:
            continue
        if (smaller := _smaller(build, env, groups, *left)) is None:
            may_shrink = False
            continue
        chosen, kept = [groups[g] for g in left[0]], left[1]
        failures.update(_faults(env, groups))
        env, groups, rows, active = smaller, chosen, rows[kept], active[kept]
        motion.go_on(env, kept)
        act, obs = acting(env, [modules[g] for g in groups]), env.observe(active)
    failures.update(_faults(env, groups))
    whole[rows] = active
    fitness = of_episodes(env, fitness, whole, steps)
    return Played(layout.split(fitness).cpu(), layout.split(whole).cpu(), motion, failures, notes, unmeasured)


def _faults(env: GroupedVecTask, groups: Sequence[int]) -> dict[int, Fault]:
    env.dispatch.poll()
    return {groups[g]: fault for g, fault in env.failures.items()}


def _left(env: DisturbedEnv, active: Tensor, steps: int) -> tuple[list[int], Tensor] | None:
    """Return groups and rows to go on with; None if that is not worth a new simulation."""
    split = env.layout.split(active)
    counts = split.sum(dim=1).tolist()
    groups = [g for g, count in enumerate(counts) if count]
    width = max(counts) if _may_narrow(env) else env.layout.envs_per_group
    size = len(groups) * width
    if not 0 < size <= SHARE * env.num_envs or (env.num_envs - size) * steps <= WORTH[env.device.type]:
        return None
    # those that go on first, in the order of their lanes
    order = torch.argsort((~split[groups]).byte(), dim=1, stable=True)[:, :width].sort(dim=1).values
    first = torch.tensor(groups, device=env.device).unsqueeze(1) * env.layout.envs_per_group
    return groups, (first + order).flatten()


def _smaller(
    build: Build, env: DisturbedEnv, groups: Sequence[int], chosen: Sequence[int], rows: Tensor
) -> DisturbedEnv | None:
    """Return an environment that goes on with rows of some groups; None if there cannot be one beside ``env``."""
    try:
        smaller = build([groups[g] for g in chosen], env.lane[rows].view(len(chosen), -1).cpu())
        smaller.take_over(env, chosen, rows)
    except (ValueError, MemoryError, RuntimeError) as error:
        if not (isinstance(error, ValueError) or is_out_of_memory(error)):
            raise
        log.info("ended episodes are simulated to the end: %s", error)
        return None
    # a fault while it was built is not the candidate's
    return smaller if _faults(smaller, chosen).keys() <= _faults(env, range(len(groups))).keys() else None


def _functions(env: DisturbedEnv) -> list[CandidateFunction]:
    return [x for shaping in env.dispatch.shapings for x in shaping.functions.values()]


def _may_narrow(env: DisturbedEnv) -> bool:
    """Return whether groups may have fewer environments: functions draw by their places in the group."""
    begins = env.task.new_goal is not None or env.task.timed_out is not None  # also within an episode
    drawing = (x for x in _functions(env) if x.draws and (begins or KINDS[x.type].called != NEW_EPISODE))
    return env.device.type != "cpu" and not any(drawing)


def acting(env: GroupedVecTask, modules: Sequence[nn.Module]) -> Callable[[Tensor], Tensor]:
    """Return the policies of all groups as one function of padded observations; each has its own rows alone.

    On a CPU they are called one after the other. On CUDA those of one architecture are one batch.
    """
    modules = [module.to(env.device) for module in modules]
    widths = list(zip(env.obs_dims, env.action_dims))
    calls: list[tuple[list[int], Callable[[Tensor], Tensor]]] = [([g], module) for g, module in enumerate(modules)]
    if env.device.type != "cpu":
        calls = batched(modules, widths)
    # indices on the device: lists would be copied to it in each step
    placed = [(torch.tensor(groups, device=env.device), groups[0], len(groups), call) for groups, call in calls]

    def act(obs: Tensor) -> Tensor:
        actions = torch.zeros_like(env.actions)
        by_group, seen = env.layout.split(actions), env.layout.split(obs)
        for index, first, count, call in placed:
            obs_dim, action_dim = widths[first]
            if count == 1:
                by_group[first, :, :action_dim] = call(seen[first, :, :obs_dim].contiguous())
            else:
                by_group[index, :, :action_dim] = call(seen[index, :, :obs_dim])
        return actions

    return act


def batched(
    modules: Sequence[nn.Module], widths: Sequence[tuple[int, int]]
) -> list[tuple[list[int], Callable[[Tensor], Tensor]]]:
    """Return the indices of modules of one architecture, and their call as a batch: ``(modules, n, obs_dim)``.

    Modules whose results in a batch would differ are alone, and are called with ``(n, obs_dim)``.
    """
    alike: dict[tuple[Hashable, tuple[int, int]], list[int]] = {}
    for k, module in enumerate(modules):
        alike.setdefault((_architecture(module), widths[k]), []).append(k)
    calls: list[tuple[list[int], Callable[[Tensor], Tensor]]] = []
    for (_, (width, _)), members in alike.items():
        together = _together([modules[k] for k in members], width) if len(members) > 1 else None
        calls += [([k], modules[k]) for k in members] if together is None else [(members, together)]
    return calls


def _architecture(module: nn.Module) -> Hashable:
    """Return what is equal for modules that differ in the numbers of parameters and buffers alone."""
    shapes = [(name, x.shape) for name, x in (*module.named_parameters(), *module.named_buffers())]
    plain = [
        (name, str(x.tolist() if isinstance(x, Tensor) else x))
        for each in module.modules()
        for name, x in vars(each).items()
        if name not in _OF_TORCH
    ]
    return repr(module), tuple(shapes), tuple(plain)


def _together(modules: Sequence[nn.Module], width: int) -> Callable[[Tensor], Tensor] | None:
    """Return the call of modules as a batch; None if its results would differ."""
    device = next((x.device for x in modules[0].parameters()), None)
    obs = torch.linspace(-3.0, 3.0, 4 * width, device=device).view(4, width)
    try:
        together = _stacked(modules)
        alone = torch.stack([module(obs) for module in modules])
        equal = torch.allclose(together(obs.expand(len(modules), -1, -1)), alone, rtol=1e-3, atol=1e-4)
    except RuntimeError:  # an operator that does not work in a batch, or modules that differ
        return None
    return together if equal else None


def _stacked(modules: Sequence[nn.Module]) -> Callable[[Tensor], Tensor]:
    parameters, buffers = stack_module_state(list(modules))

    def one(weights: dict[str, Tensor], kept: dict[str, Tensor], obs: Tensor) -> Tensor:
        return functional_call(modules[0], (weights, kept), (obs,))

    together = torch.vmap(one)
    return lambda obs: together(parameters, buffers, obs)
