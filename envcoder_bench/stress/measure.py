"""The stress of a run's final policies: all candidates, seeds and draws of the grid, without training.

The rows of a policy are the same alone and among others, bitwise on the CPU. So policies are measured in parts, as many
at once as there is room for, and the rows of a part are on disk when it is done: a killed command goes on there.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import file_digest
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.settings import merged, nested
from envcoder_bench.core.torch_settings import settings_kept
from envcoder_bench.core.words import counted, join_some
from envcoder_bench.results.stress import FILE, Row, Settings, Stress, read_stress, write_stress
from envcoder_bench.results.stress_grid import stress_grid
from envcoder_bench.run.folder.checkpoint import GroupKey
from envcoder_bench.run.folder.policies import OpenedRun, load_policy, open_run
from envcoder_bench.run.prepare.environments import build_task
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.seeds import run_seeds
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sim import pick_simulator
from envcoder_bench.stress.commands import probe_commands
from envcoder_bench.stress.disturbed_env import DisturbedEnv, robot_of
from envcoder_bench.stress.episodes import acting, play
from envcoder_bench.stress.other_physics import other_physics
from envcoder_bench.stress.sensors import unmeasured
from envcoder_bench.tasks.spec import Can

MOST_ENVS = {"mujoco_cpu": 8_192, "mujoco_warp": 65_536}  # environments of a part
Policies = Mapping[GroupKey, tuple[nn.Module, str]]  # and the digest of its file
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What to measure.

    Attributes:
        draws, episodes: fewer than the grid has, for a quick look; None: all.
        seconds: the length of the episodes; None: full ones.
        candidates: names; empty: all that have policies.
        device: auto, cpu or cuda:N, as of a run.
        physics: whether also to play the nominal draw in other physics.
    """

    draws: int | None = None
    episodes: int | None = None
    seconds: float | None = None
    candidates: Sequence[str] = ()
    device: str = "auto"
    physics: bool = False


@dataclass
class Measured:
    """The stress of a run, and why candidates are missing, by name."""

    run: OpenedRun
    stress: Stress
    failed: dict[str, str] = field(default_factory=dict)


def stress_run(path: str | Path, asked: Asked, tell: Callable[[str], None] = log.info) -> Measured:
    """Measure what stress.csv of a run's folder lacks, and return all of it.

    Args:
        tell: called with a line at the beginning of each part.

    Raises:
        UserError: it is not a run, it has no policy, or its task cannot be disturbed.
    """
    run = open_run(path)
    with run.folder.locked(), settings_kept():
        torch.set_num_threads(1)
        policies, failed = _policies(run, asked.candidates)
        with user_input():
            sim, device = pick_simulator("auto", asked.device)
            settings = _settings(asked, sim)
            before = read_stress(run.folder.path)
        if before is not None and not before.settings.same(settings):
            had = f"{counted(before.settings.draws, 'draw')} of {counted(before.settings.episodes, 'episode')}"
            remedy = f"{before.settings.sim}: ask for the same, or remove it"
            raise UserError(f"{run.folder.path / FILE} has {had}, another length or another simulator, {remedy}")
        rows = [] if before is None else [row for row in before.rows if _is_fresh(row, policies)]
        there = {row.key for row in rows if not row.physics}
        kept = Stress(settings, ())
        if before is not None:
            commands = tuple(row for row in before.commands if (row.candidate, row.seed) in there)
            kept = Stress(before.settings, tuple(rows), commands)
        measured = Measured(run, kept, failed)
        _measure(measured, {key: policy for key, policy in policies.items() if key not in there}, device, tell)
        if asked.physics:
            _measure_physics(measured, policies, device, tell)
        measured.stress = read_stress(run.folder.path) or measured.stress  # as anybody will read it
    return measured


def _settings(asked: Asked, sim: str) -> Settings:
    grid = stress_grid()
    draws = len(grid.draws) if asked.draws is None else asked.draws
    episodes = grid.episodes if asked.episodes is None else asked.episodes
    if not 1 <= draws <= len(grid.draws) or episodes < 1:
        raise ValueError(
            f"the grid has 1 to {len(grid.draws)} draws of at least one episode, not {draws} of {episodes}"
        )
    if asked.seconds is not None and not 0.001 <= asked.seconds < math.inf:
        raise ValueError(f"seconds is {asked.seconds:g}: it must be at least 0.001")
    milliseconds = 0 if asked.seconds is None else round(1000.0 * asked.seconds)
    return Settings(grid.version, draws, episodes, milliseconds, sim=sim)


def _policies(run: OpenedRun, names: Sequence[str]) -> tuple[Policies, dict[str, str]]:
    """Return the policies of candidates and seeds, and why candidates have none."""
    policies: dict[GroupKey, tuple[nn.Module, str]] = {}
    failed: dict[str, str] = {}
    for name in names or run.sources:
        run.source(name)
        for seed in run_seeds(run.cfg):
            try:
                policy = load_policy(run, name, seed)
            except UserError as error:
                failed[name] = str(error)
                continue
            policies[name, seed] = (policy.module, file_digest(policy.file)[:16])
    if not policies:
        raise UserError(next(iter(failed.values()), f"{run.folder.path}: it has no policy"))
    return policies, failed


def _is_fresh(row: Row, policies: Policies) -> bool:
    """Return whether a row is of the policy that the run has now; rows of candidates that are not asked for stay."""
    return row.key not in policies or policies[row.key][1] == row.policy


def _measure(measured: Measured, policies: Policies, device: str, tell: Callable[[str], None]) -> None:
    settings = measured.stress.settings
    spec = _spec(measured.run, {name for name, _ in policies}, settings.sim, device)
    for part in _parts(measured, spec, policies, settings, tell):
        modules = [policies[group.key][0] for group in part]
        commands, reason = probe_commands(spec, part, lambda env, modules=modules: acting(env, modules))
        rows, settings, faults = measure_groups(spec, part, policies, settings)
        earlier = measured.stress.settings.notes  # also those of other physics
        settings = replace(
            settings,
            notes=[*settings.notes, *(note for note in earlier if note not in settings.notes)],
            absent={**settings.absent, **({"commands": reason} if reason else {})},
            unmeasured={**measured.stress.settings.unmeasured, **settings.unmeasured},
        )
        measured.failed.update(faults)
        before = measured.stress
        measured.stress = Stress(settings, (*before.rows, *rows), (*before.commands, *commands))
        write_stress(measured.run.folder.path, measured.stress)


def _measure_physics(measured: Measured, policies: Policies, device: str, tell: Callable[[str], None]) -> None:
    """Measure what is missing of the nominal draw in other physics."""
    settings = replace(measured.stress.settings, draws=0)
    spec = _spec(measured.run, {name for name, _ in policies}, settings.sim, device)
    changes, notes = other_physics(spec)
    if new := [note for note in notes if note not in measured.stress.settings.notes]:
        noted = replace(measured.stress.settings, notes=[*measured.stress.settings.notes, *new])
        measured.stress = replace(measured.stress, settings=noted)
        write_stress(measured.run.folder.path, measured.stress)
    for name, other in changes.items():
        there = {row.key for row in measured.stress.rows if row.physics == name}
        missing = {key: policy for key, policy in policies.items() if key not in there}
        for part in _parts(measured, other, missing, settings, lambda line, name=name: tell(f"{name}: {line}")):
            rows, _, faults = measure_groups(other, part, policies, settings)
            measured.failed.update(faults)
            new = tuple(replace(row, physics=name) for row in rows)
            measured.stress = replace(measured.stress, rows=(*measured.stress.rows, *new))
            write_stress(measured.run.folder.path, measured.stress)


def _parts(
    measured: Measured, spec: RunSpec, policies: Policies, settings: Settings, tell: Callable[[str], None]
) -> Iterator[list[Group]]:
    """Yield the groups of policies, as many as play at once."""
    if not policies:
        return
    with user_input():
        groups, faults = prepare(spec)
    measured.failed.update({name: str(fault) for name, fault in faults.items()})
    groups = [group for group in groups if group.key in policies]
    size = max(1, MOST_ENVS[settings.sim] // ((1 + settings.draws) * settings.episodes))
    for first in range(0, len(groups), size):
        part = groups[first : first + size]
        last = first + len(part)
        names = join_some([group.name for group in part])
        tell(f"{counted(len(part), 'policy', 'policies')}, {last} of {len(groups)}: {names}")
        yield part


def _spec(run: OpenedRun, names: set[str], sim: str, device: str) -> RunSpec:
    """Return the run with these candidates on a device."""
    cfg, spec = run.cfg, run.spec
    if cfg.device.split(":")[0] != device.split(":")[0] and not cfg.untrusted:
        spec = spec.changed(compile_shapers=False)  # the run did not compile kernels for this device
    kept = tuple(source for source in spec.sources if source.name in names)
    return with_contacts(replace(spec.changed(sim=sim, device=device), sources=kept))


def with_contacts(spec: RunSpec) -> RunSpec:
    """Return a run whose task measures the contact force on each body, if it has to be asked."""
    if Can.CONTACTS not in spec.task.can:
        return spec
    return spec.changed(task=merged(spec.config.task, nested({"sim.contacts": True})))


def measure_groups(
    spec: RunSpec, groups: Sequence[Group], policies: Policies, settings: Settings
) -> tuple[list[Row], Settings, dict[str, str]]:
    """Return the rows of groups that play at once, the settings with what is absent, and faults by candidate."""
    grid = settings.grid

    def build(chosen: Sequence[int], lanes: Tensor | None) -> DisturbedEnv:
        size = (1 + settings.draws) * settings.episodes if lanes is None else lanes.shape[1]
        layout = GroupLayout(len(chosen), size)
        task = build_task(spec, layout.num_envs)
        robot, shapings = robot_of(task), [groups[g].evaluation for g in chosen]
        with user_input():
            flat = None if lanes is None else lanes.flatten()
            return DisturbedEnv(task, robot, layout, shapings, spec.config.seed, grid, flat)

    played = play(build, [policies[group.key][0] for group in groups], settings.milliseconds)
    shape = (len(groups), 1 + settings.draws, settings.episodes)
    fitness = played.fitness.double().view(shape).mean(dim=2).tolist()
    whole = played.whole.double().view(shape).mean(dim=2).tolist()
    columns = played.motion.columns()
    rows = []
    for g, group in enumerate(groups):
        if g in played.failures:
            continue
        digest = policies[group.key][1]
        for draw in range(1 + settings.draws):
            moved = dict(columns[g][draw])
            contacts = moved.pop("new_contacts")
            values = (settings.episodes, fitness[g][draw], whole[g][draw], moved, contacts, digest)
            rows.append(Row(group.name, group.seed, draw, *values))
    faults = {groups[g].name: str(fault) for g, fault in played.failures.items()}
    unknown = {group.name: unmeasured(group, of_terms) for group, of_terms in zip(groups, played.unmeasured)}
    return rows, replace(settings, absent=played.motion.absent, notes=played.notes, unmeasured=unknown), faults
