"""The number of seeds of a run with ``seeds=auto``: as many as a GPU trains in less than twice the time of one.

A GPU is not full with few environments: three seeds of 12 candidates take less than twice the time of one. A run on a
CPU takes one seed, because its time grows almost in proportion to the number of environments.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.words import counted
from envcoder_bench.run.spec import AUTO, RunConfig

MOST = 5
SLOWER = 2.0  # an iteration takes less than this times that of one seed
LARGEST = 2**32 - 1  # largest seed of numpy
PPO = "a2c_continuous"

# Env-steps/s of a training by number of environments, for Anymal: the newest records of kind "scaling" in
# benchmarks/benchmarks.jsonl on 2026-11-26, 4 x 256, 1 x 4,096, 64 x 256, 250 x 256 and 1,000 x 256 (candidates x
# environments). 64 x 256 and 1,000 x 256 are of an H200, the others of an H100 80GB: the newest records of the two
# cards differ by less than 10 % where both have one.
RATES = {1024: 602_071, 4096: 1_775_634, 16_384: 3_246_981, 64_000: 4_326_733, 256_000: 4_703_339}
MULTIPROCESSORS = 132  # both GPUs have so many


class Load(NamedTuple):
    """What a device trains in an iteration: the groups of its largest wave, and its waves, one after another."""

    groups: int
    waves: int


def run_seeds(cfg: RunConfig) -> range:
    """Return the seeds of a run."""
    return range(cfg.seed, cfg.seed + seed_count(cfg))


def seed_count(cfg: RunConfig) -> int:
    """Return the number of seeds of a run; 1 while ``seeds=auto`` is not replaced by a number."""
    return 1 if cfg.seeds == AUTO else int(cfg.seeds)


def check_chosen(cfg: RunConfig) -> None:
    """Raise UserError if the config of a run that has begun has no number of seeds."""
    if cfg.seeds == AUTO:
        raise UserError(f"seeds must be the number of seeds that the run began with, got {AUTO}")


def refuse_in_race(cfg: RunConfig, overrides: Sequence[str]) -> None:
    """Raise UserError if the user asks for ``seeds=auto`` in a race, which takes one seed by default."""
    asked = any(word.partition("=")[0] == "seeds" for word in overrides)
    if asked and cfg.seeds == AUTO and cfg.race.enabled:
        raise UserError(
            f"seeds={AUTO} with a race: how long a race takes cannot be predicted; give a number, such as --seeds 3, or"
            " omit it for one seed"
        )


def most_seeds(cfg: RunConfig, shared_total: bool = False) -> int:
    """Return the largest number of seeds that a run may take. Arguments as of ``settle_seeds``."""
    if cfg.seeds != AUTO or _why_one(cfg, shared_total):
        return seed_count(cfg)
    return min(MOST, LARGEST - cfg.seed + 1)


def settle_seeds(
    cfg: RunConfig,
    load: Callable[[int], Load],
    devices: int = 1,
    multiprocessors: int = MULTIPROCESSORS,
    shared_total: bool = False,
) -> tuple[int, str]:
    """Choose the number of seeds of a run with ``seeds=auto``.

    Args:
        load: returns what a device trains with a number of seeds; called only where a number can be chosen.
        shared_total: whether the number of environments was given as a total for all candidates and seeds.

    Returns:
        The number, and a sentence for the user with the reason; empty if the user gave the number, or if nothing
        trains.
    """
    if cfg.seeds != AUTO:
        return cfg.seeds, ""
    most, why = most_seeds(cfg, shared_total), _why_one(cfg, shared_total)
    if why:
        return 1, _sentence(1, f" {why}")
    # the most seeds that take less than SLOWER times as long as one
    loads = {count: load(count) for count in range(1, most + 1)}
    if not loads[1].groups:
        return 1, ""
    num_envs = cfg.num_envs_per_candidate
    times = {count: slowdown(loads[count], loads[1], num_envs, multiprocessors) for count in loads}
    chosen = max(count for count, time in times.items() if count == 1 or time < SLOWER)
    # why, in a sentence
    reasons = []
    timed = chosen if chosen > 1 else min(2, most)
    if math.isfinite(times[timed]):
        groups = loads[timed].groups
        verb = "would take" if timed > chosen else "takes" if groups == 1 else "take"
        what = f"{counted(groups, 'group')} of {counted(num_envs, 'environment')}{' on each device' * (devices > 1)}"
        reasons.append(f"{what} {verb} {times[timed]:.2f} times as long an iteration as {loads[1].groups:,}")
    if math.isinf(times.get(chosen + 1, 0.0)):
        waves = f"{counted(loads[chosen + 1].waves, 'wave')}{' on a device' * (devices > 1)}"
        reasons.append(f"{chosen + 1} seeds need {waves} instead of {loads[1].waves}")
    return chosen, _sentence(chosen, f": {', and '.join(reasons)}")


def slowdown(load: Load, one: Load, num_envs: int, multiprocessors: int = MULTIPROCESSORS) -> float:
    """Return the predicted time of an iteration in units of that of one seed; infinite if it takes more waves.

    Args:
        load, one: what a device trains, and with one seed.
    """
    if load.waves > one.waves:
        return math.inf
    time, of_one = (x.waves * step_time(x.groups * num_envs, multiprocessors) for x in (load, one))
    return time / of_one


def step_time(num_envs: int, multiprocessors: int = MULTIPROCESSORS) -> float:
    """Return the predicted seconds of a control step of all environments, training included, for Anymal.

    Interpolated between RATES in logarithms. The first two give the line below them, and the last rate holds beyond. A
    device with fewer multiprocessors is taken to be as full as one of RATES with more environments in proportion.
    """
    envs = num_envs * MULTIPROCESSORS / multiprocessors
    sizes = list(RATES)
    if envs >= sizes[-1]:
        return envs / RATES[sizes[-1]]
    below, above = next(pair for pair in itertools.pairwise(sizes) if envs < pair[1])
    slope = math.log(RATES[above] / RATES[below]) / math.log(above / below)
    return envs / (RATES[below] * (envs / below) ** slope)


def _why_one(cfg: RunConfig, shared_total: bool) -> str:
    """Return why a run takes one seed, whatever its size; empty if its size decides."""
    trainer = cfg.train.params.algo.name
    if cfg.race.enabled:
        return "in a race"
    if shared_total:
        return "with --num_envs, which all seeds would share"
    if cfg.device == "cpu":
        return "on a CPU"
    if cfg.isolate:
        return f"with --isolate {cfg.isolate}, which trains one seed after another"
    if trainer != PPO:
        return f"with the trainer {trainer}, whose time with more seeds is not known"
    return ""


def _sentence(count: int, why: str) -> str:
    if count > 1:
        return f"{count} seeds for each candidate (seeds={AUTO}{why}; --seeds N sets it)"
    spread = "it says nothing about the spread of seeds; --seeds 3 trains three"
    return f"1 seed for each candidate (seeds={AUTO}{why}): {spread}"
