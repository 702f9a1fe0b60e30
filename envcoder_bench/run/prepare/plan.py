"""Estimation of a run's memory before it is allocated, and division of its groups into waves that fit."""

import gc
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psutil  # rl_games' own dependency
import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.words import counted
from envcoder_bench.results.ranking import entrants
from envcoder_bench.run.folder.checkpoint import GroupKey
from envcoder_bench.run.prepare.environments import build_task, probe_envs
from envcoder_bench.run.prepare.forecast import Physics
from envcoder_bench.run.prepare.groups import Group
from envcoder_bench.run.seeds import MULTIPROCESSORS, Load, seed_count
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sim import in_background
from envcoder_bench.tasks.base import Task
from envcoder_bench.tasks.spec import Can
from envcoder_bench.trainers.base import MemoryEstimate, Widths, padded_widths, widest
from envcoder_bench.trainers.registry import trainer_class

USABLE = 0.9  # usable share of the free memory: allocators round up, and other programs run too
# memory of the smallest run: libraries and a compiler; the CUDA context, kernels and graphs (on an H200)
PROGRAM = {"cpu": 0.64 * 2**30, "cuda": 1.0 * 2**30}
WIDE_SHARE = 0.1  # share of the memory beyond which the padding to the widest candidate is reported
_UNITS = {"": 2**30, "b": 1, **{f"{p}b": 1000**k for k, p in enumerate("kmgt", 1)}}
_UNITS.update({f"{p}{b}": 1024**k for k, p in enumerate("kmgt", 1) for b in ("", "i", "ib")})


def parse_size(size: object) -> int:
    """Return the bytes of a size such as ``24GiB``, ``24000MB`` or ``24`` (GiB). Raises UserError."""
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*([a-z]*)", str(size).strip().lower())
    if not match or match.group(2) not in _UNITS or not float(match.group(1)) > 0:
        raise UserError(f"--max_memory must be a size such as 24GiB, 24000MB or 24 (GiB), got {size}")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


class GroupFacts(NamedTuple):
    """What the plan needs to know of a group, which another process may have checked; ``widths`` as of Group."""

    name: str
    seed: int
    widths: Widths

    @property
    def key(self) -> GroupKey:
        return self.name, self.seed


Planned = Group | GroupFacts


@dataclass(frozen=True)
class Plan:
    """The division of a run's groups into waves.

    Attributes:
        waves: groups that train together; a wave is evaluated and saved before the next one is allocated.
        needed: estimated bytes of the largest wave.
        at_once: estimated bytes of all groups together.
        available: bytes that the run may use.
        wide: a line for each candidate whose width increases the memory of the others much.
        seeds: a line with the number of seeds that the run chose, and why; empty if the user gave it.
        time: a line with the env-steps and the time of training.
    """

    waves: list[list[Any]]
    needed: int
    at_once: int
    available: int
    wide: tuple[str, ...] = ()
    seeds: str = ""
    time: str = ""

    def __str__(self) -> str:
        groups = [group for wave in self.waves for group in wave]
        field = entrants(dict.fromkeys(group.name for group in groups))
        what = (
            f"memory: about {_size(self.at_once)} for {counted(len(groups), 'group')} ({field}, a group for each seed)"
        )
        what += f", {_size(self.available)} may be used: "
        if len(self.waves) == 1:
            return what + "one wave"
        widest = counted(max(map(len, self.waves)), "group")
        return what + f"{len(self.waves)} waves, of up to {widest} and {_size(self.needed)} each"


class MemoryPlanner:
    """Estimates the memory of groups on the run's device, by a small simulation of its task, and plans waves.

    A simulator's kernels are loaded in the background; the first estimate waits for them.

    Attributes:
        physics: what the small simulation says of the time of training, once a worker has measured it.
    """

    physics: Physics | None = None

    def __init__(self, spec: RunSpec, sharers: int = 1) -> None:
        """Begin; ``sharers`` processes like this one share what is free."""
        self._cfg = cfg = spec.config
        with in_background(cfg.sim):
            task = build_task(spec, probe_envs(cfg))
        self._small: Task | None = task
        self._measured: tuple[int, int] | None = None  # bytes of an environment, and of what may be used
        self._sharers = sharers
        # build_probe has the same condition
        self._is_probe = cfg.sim == "mujoco_cpu" or Can.PROBE_ON_CPU not in spec.task.can
        self._state = sum(x[0].numel() * x.element_size() for x in (*task.state.values(), *task.default_state.values()))
        self._dofs = task.num_dofs
        self.expect_seeds(seed_count(cfg))
        self.multiprocessors = multiprocessors(cfg.device)
        self._program = int(PROGRAM["cpu" if cfg.device == "cpu" else "cuda"])
        self._limit = None if cfg.max_memory is None else parse_size(cfg.max_memory)
        if self._is_probe:
            self.measure()

    def expect_seeds(self, count: int) -> None:
        """Set the number of different seeds for which memory is estimated."""
        cfg = self._cfg
        params = cfg.params
        device = torch.device(cfg.device)
        self._num_seeds = count
        self._trainer: MemoryEstimate = trainer_class(params).memory(params, cfg.num_envs_per_candidate, count, device)

    def __getstate__(self) -> dict[str, Any]:
        """What a process on another machine needs to plan for this device: all but the simulation."""
        self.measure()
        return {**vars(self), "_trainer": None, "_small": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.expect_seeds(self._num_seeds)

    @property
    def ready(self) -> bool:
        """Whether an estimate has nothing to wait for."""
        return self._measured is not None

    @property
    def available(self) -> int:
        """Bytes that the run may use: ``max_memory``, and no more than is free."""
        return self.measure()[1]

    def take_probe(self) -> Task | None:
        """Return the small simulation if it can be the probe of ``prepare``, and drop it here to free its memory."""
        if not self._is_probe:
            return None
        probe, self._small = self._small, None
        return probe

    def close(self) -> None:
        """Drop the small simulation, and stop loading it if that goes on."""
        self._small = None

    def measure(self) -> tuple[int, int]:
        """Wait for the simulation; return the bytes of one environment, and ``available``."""
        if self._measured is None:
            assert self._small is not None, "the planner is closed"
            each = self._small.bytes_per_env
            free = self._program + int(USABLE * free_bytes(self._cfg.device) / self._sharers)
            self._measured = each, free if self._limit is None else min(free, self._limit)
            if not self._is_probe:
                self._small = None
        return self._measured

    def bytes(self, widths: Sequence[Widths]) -> int:
        """Estimate the memory of groups of these widths together, in bytes."""
        return self._program + len(widths) * self._environments(*widest(widths)) + self._trainer(widths)

    def _environments(self, obs: int, act: int, critic: int = 0) -> int:
        """Estimate the bytes of one group's environments, for training and evaluation."""
        buffers = 2 * self._state + 4 * (3 * (obs + critic) + 6 * act + 4 * self._dofs + 16)
        evaluation = self._cfg.evaluation
        envs = self._cfg.num_envs_per_candidate + (1 + evaluation.half_step) * evaluation.num_envs
        return envs * (self.measure()[0] + buffers)

    def refuse_too_large(self) -> None:
        """Raise UserError if not even the narrowest candidate fits."""
        self._refuse_beyond((1, 1))

    def _refuse_beyond(self, widths: Widths, who: str = "one candidate") -> None:
        envs, needed = self._cfg.num_envs_per_candidate, self.bytes([widths])
        if needed > self.available:
            # the remedy: fewer environments, or more memory
            fit = max(0, int(envs * (self.available - self._program) / (needed - self._program)))
            limited = self._cfg.max_memory is not None
            if fit:
                remedy = (
                    f": about {fit} environments fit; lower --num_envs_per_candidate"
                    + " or raise --max_memory" * limited
                )
            else:
                remedy = f"; the program alone takes {_size(self._program)}: " + (
                    "raise --max_memory" if limited else "end other programs"
                )
            raise UserError(
                f"{who} with {envs} environments needs about {_size(needed)}, and {_size(self.available)} may be used"
                f" on {self._cfg.device}{remedy}"
            )

    def plan(self, groups: Sequence[Planned], begun: Sequence[Sequence[Planned]] = (), devices: int = 1) -> Plan:
        """Divide groups, in their order, into as few equal waves as fit, after the waves that have ``begun``, if any.

        In deterministic runs they are sorted by their padded widths; in others, those with critic observations are
        last, because they learn in blocks of their own.

        With several ``devices`` each gets equally many waves, if there are enough groups.

        Raises UserError if a group does not fit alone.
        """
        # groups that learn in one block are adjacent
        if self._cfg.deterministic:  # adjacent groups of equal padding learn together
            groups = sorted(groups, key=lambda group: padded_widths(*group.widths))
        else:
            groups = sorted(groups, key=lambda group: len(group.widths))
        for group in groups:
            self._refuse_beyond(group.widths, group.name)
        # the fewest waves that fit
        waves: list[list[Any]] = [[group] for group in groups] if self._cfg.isolate else []
        for count in _counts(len(groups), len(begun), devices) if not waves else ():
            waves = split(groups, count)
            if max(map(self._needed, waves)) <= self.available:
                break
        waves = [list(wave) for wave in begun] + waves
        needed = max(map(self._needed, waves), default=0)
        everyone = [group for wave in begun for group in wave] + [*groups]
        return Plan(waves, needed, self._needed(everyone) if waves else 0, self.available, tuple(self._wide(everyone)))

    def load(self, widths: Mapping[str, Widths], seeds: int, devices: int = 1) -> Load:
        """Return what a device trains if the candidates of these widths have so many seeds each.

        Memory is estimated for this number of seeds from now on. Raises UserError as ``plan``.
        """
        self.expect_seeds(seeds)
        groups = [GroupFacts(name, seed, of_one) for name, of_one in widths.items() for seed in range(seeds)]
        waves = self.plan(groups, devices=devices).waves
        return Load(max(map(len, waves), default=0), -(-len(waves) // devices))

    def _wide(self, groups: Sequence[Planned]) -> Iterator[str]:
        """Name the candidates with the widest observations and actions, if the padding of the others costs much."""
        widths = {group.name: (*group.widths, 0)[:3] for group in groups}
        needed = self._needed(groups) if groups else 0
        for axis, what in enumerate(("observations", "actions", "critic observations")):
            ordered = sorted(widths, key=lambda name: widths[name][axis])
            if len(ordered) < 2:
                return
            name, most, next_most = ordered[-1], widths[ordered[-1]][axis], widths[ordered[-2]][axis]
            others = [group for group in groups if group.name != name]
            by_itself = self._needed([group for group in groups if group.name == name]) - self._program
            cost = needed - self._needed(others) - by_itself  # the padding of the others
            if next_most and most >= 2 * next_most and cost > WIDE_SHARE * needed:
                yield (
                    f"{name} has {most:,} {what} and the next widest candidate {next_most:,}: all are padded to the"
                    f" widest, which costs {_size(cost)} of the {_size(needed)}"
                )

    def _needed(self, groups: Sequence[Planned]) -> int:
        return self.bytes([group.widths for group in groups])


def _counts(groups: int, begun: int, devices: int) -> Iterator[int]:
    """The numbers of waves to try: with those that have begun, equally many for each device."""
    count = 0
    while count < groups:
        count += 1
        while (count + begun) % devices and count < groups:
            count += 1
        yield count


def split(groups: Sequence[Any], count: int) -> list[list[Any]]:
    """Cut groups into ``count`` consecutive parts whose lengths differ by at most one, longer ones first."""
    size, longer = divmod(len(groups), count)
    ends = [(k + 1) * size + min(k + 1, longer) for k in range(count)]
    return [list(groups[start:end]) for start, end in zip([0, *ends], ends)]


def _size(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def multiprocessors(device: str) -> int:
    """Return the number of multiprocessors of a CUDA device; without one, that of the device of ``seeds.RATES``."""
    if not device.startswith("cuda"):
        return MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(torch.device(device)).multi_processor_count)


def release(device: str) -> None:
    """Free unreferenced memory: Python's reference cycles, and torch's cached CUDA memory."""
    gc.collect()
    if device != "cpu":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def free_bytes(device: str) -> int:
    """Return the free memory of the device in bytes."""
    if device == "cpu":
        return psutil.virtual_memory().available
    return torch.cuda.mem_get_info(torch.device(device))[0]


def used_bytes(device: str) -> int:
    """Return the main memory used by this process, or the memory of a CUDA device used by all processes, in bytes."""
    if device == "cpu":
        return psutil.Process().memory_info().rss
    free, total = torch.cuda.mem_get_info(torch.device(device))
    return total - free
