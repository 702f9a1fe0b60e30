"""Preparation of groups from candidate files: load, assemble, check, trace, group.

Each step is a function of plain data: files, and a ``TaskSnapshot`` of a small simulation of the task.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterable, Mapping, Sequence

import torch
from omegaconf import DictConfig

from envcoder_bench.compile import kernels
from envcoder_bench.compile.cache import FunctionCache
from envcoder_bench.compile.trace import Memo, Untraced, trace
from envcoder_bench.core import noise
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.garbage import collection_paused
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.jail.probing import log_confinement
from envcoder_bench.jail.results import examine
from envcoder_bench.run.check_cache import CachedCheck
from envcoder_bench.run.fitness import load_fitness
from envcoder_bench.run.folder import CandidateSource
from envcoder_bench.run.race import all_seeds
from envcoder_bench.run.slow import SlowFiles
from envcoder_bench.shaping import kinds
from envcoder_bench.shaping.assemble import Shaping, assemble
from envcoder_bench.shaping.checking import TrialState, check, check_fitness
from envcoder_bench.shaping.contract import Candidate, CandidateError, CandidateFunction
from envcoder_bench.shaping.kinds import FITNESS, KINDS, STAGES
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.tasks.base import BASELINES, UNSHAPED, Task
from envcoder_bench.tasks.contract import TaskContract, TaskSnapshot
from envcoder_bench.tasks.registry import baseline_path, get_spec, make_task
from envcoder_bench.tasks.sim_task import SimTask
from envcoder_bench.tasks.task_code import check_fitness_value, computed, task_code, warn_of_frozen

PROBE_ENVS = 64  # most environments of the small simulation on which functions are checked
log = logging.getLogger(__name__)
Faults = Dict[str, CandidateError]


@dataclass(frozen=True)
class Group:
    """A candidate with a seed: its shapings for training and for evaluation."""

    name: str
    seed: int
    shaping: Shaping
    evaluation: Shaping

    @property
    def widths(self) -> tuple[int, int]:
        """Of its observation and its action."""
        return self.shaping.obs_dim, self.shaping.action_dim


@dataclass(frozen=True)
class RunFiles:
    """The files of a run, and how they are loaded.

    Attributes:
        baselines: the baselines by name; a resumed run has its own copies.
        baseline: the name of the baseline that fills in.
        fitness: the file whose ``compute_fitness`` evaluations measure; None for the task's own fitness.
        shaper_types: the functions taken from candidates; None for all that they define.
        slow: names files that take long.
        jailed: results of the jail for untrusted files, by name.
        loaded: stateless files by name and seed, which need not be loaded again. Groups never share a stateful module.
        keeping: functions that stored something when they were checked, as (file, type).
    """

    baselines: Mapping[str, CandidateSource]
    baseline: str
    fitness: CandidateSource | None
    shaper_types: Sequence[str] | None
    slow: SlowFiles
    jailed: Mapping[str, Candidate | CandidateError] = field(default_factory=dict)
    loaded: dict[tuple[str, int], Candidate] = field(default_factory=dict)
    keeping: set[tuple[str, str]] = field(default_factory=set)

    def note_keepers(self, functions: Iterable[CandidateFunction]) -> None:
        """Load the files of checked functions again from now on if these store something."""
        found = {(own.file, own.type) for own in functions if own.stateful_line is not None} - self.keeping
        self.keeping.update(found)
        files = {file for file, _ in found}
        for key, candidate in list(self.loaded.items()):
            if candidate.file in files:
                del self.loaded[key]


def baseline_sources(task: str) -> list[CandidateSource]:
    """Return the task's baselines as candidates."""
    return [
        CandidateSource(name, str(path), path.read_text(encoding="utf-8"))
        for name, path in ((name, baseline_path(task, name)) for name in BASELINES)
    ]


def build_task(cfg: DictConfig, num_envs: int) -> Task:
    """Create the run's task with ``num_envs`` environments."""
    return make_task(cfg.task.name, cfg.task, num_envs, cfg.sim, cfg.device)


def build_probe(cfg: DictConfig) -> Task:
    """Create the run's task in a small simulation, which gives its contract and a real state.

    It is on the CPU if it can be: all simulators run the same model, and those of a GPU take long to compile.
    """
    if brings_its_simulation(cfg):
        return build_task(cfg, probe_envs(cfg))
    return make_task(cfg.task.name, cfg.task, probe_envs(cfg), "mujoco_cpu", "cpu")


def probe_envs(cfg: DictConfig) -> int:
    """Return the environments of a small simulation of the run's task."""
    return min(PROBE_ENVS, cfg.num_envs_per_candidate)


def brings_its_simulation(cfg: DictConfig) -> bool:
    """Return whether the run's task has a simulation of its own, as those of Isaac Gym have."""
    return not issubclass(get_spec(cfg.task.name, cfg.task).task_class, SimTask)


def prepare(
    cfg: DictConfig,
    sources: Sequence[CandidateSource],
    fitness: CandidateSource | None = None,
    probe: Task | None = None,
) -> tuple[list[Group], Faults]:
    """Load, assemble, check, trace and group every candidate.

    Args:
        fitness: the file whose ``compute_fitness`` evaluations measure; None for the task's own fitness.
        probe: a result of ``build_probe`` in its first state; None: created here.

    Returns:
        The groups to train, candidate by candidate and seed by seed, and the faults of all other candidates.

    Raises:
        UserError: the fitness file or a baseline that all candidates need has a fault.
    """
    with SlowFiles() as slow:
        context = make_context(cfg, sources, fitness, slow, probe)
        with collection_paused():  # programs have a million small long-lived objects
            return _groups(cfg, sources, context)


@dataclass(frozen=True)
class PrepareContext:
    """The shared inputs of the preparation of all candidates of a run.

    Attributes:
        task: the task's contract and a real state; ``check``: checks shapings on that state.
        unshaped: the unshaped baseline, checked and traced.
    """

    files: RunFiles
    tracer: Tracer
    task: TaskSnapshot
    check: CachedCheck
    unshaped: Shaping


def make_context(
    cfg: DictConfig,
    sources: Sequence[CandidateSource],
    fitness: CandidateSource | None,
    slow: SlowFiles,
    probe: Task | None = None,
) -> PrepareContext:
    """Read the task's contract, load the baselines, and examine untrusted files. Arguments as of ``prepare``."""
    given = {source.name: source for source in sources}
    baselines = {own.name: given.get(own.name, own) for own in baseline_sources(cfg.task.name)}
    files = RunFiles(baselines, cfg.baseline, fitness, cfg.shaper_types, slow)
    tracer = Tracer(cfg, [*baselines.values(), *sources, *([] if fitness is None else [fitness])])
    try:
        with user_input():  # of the task's own code and numbers
            probe = probe or build_probe(cfg)
        task, unshaped = _snapshot(probe, files, tracer, cfg.seed, torch.device(cfg.device))
        _check_fitness(files, task, unshaped, cfg.seed)
        if cfg.untrusted:
            files = replace(files, jailed=_jailed(cfg, sources, files, task))
        own_check = CachedCheck(task, tracer.cache)
        if cfg.device != "cpu":  # so far it has been checked on the simulation's device
            files.note_keepers(own_check(unshaped).functions.values())
    except CandidateError as error:
        raise UserError(f"the task {cfg.task.name} cannot be used: {error}") from error
    return PrepareContext(files, tracer, task, own_check, unshaped)


def check_and_trace(source: CandidateSource, context: PrepareContext, seed: int) -> Shaping:
    """Assemble a candidate with the run's baseline, check and trace it. Raises CandidateError."""
    files, task = context.files, context.task
    shaping = load_and_assemble(source, files, seed)
    with files.slow.step("checking", source.file):
        shaping = context.check(shaping)
    files.note_keepers(shaping.functions.values())
    return context.tracer(replace(shaping, functions={**shaping.functions, **_fitness(files, seed)}), task)


def _groups(cfg: DictConfig, sources: Sequence[CandidateSource], context: PrepareContext) -> tuple[list[Group], Faults]:
    groups: list[Group] = []
    faults: Faults = {}
    for source in sources:
        try:
            shaping = check_and_trace(source, context, cfg.seed)
            groups += [make_group(source, shaping, context.unshaped, context.files, seed) for seed in all_seeds(cfg)]
        except CandidateError as error:
            faults[source.name] = error
        else:
            _warn_if_stateful([own for own in shaping.functions.values() if KINDS[own.type].shaper])
            context.tracer.tell()
    return groups, faults


def load(source: CandidateSource, files: RunFiles, seed: int) -> Candidate:
    """Load a file as a new module, or return an already loaded stateless one. Raises CandidateError."""
    judged = files.jailed.get(source.name)
    if isinstance(judged, CandidateError):
        raise judged
    if judged is not None:
        return judged
    key = (source.name, seed)
    if key not in files.loaded:
        with files.slow.step("loading", source.file):
            keeping = {type_ for file, type_ in files.keeping if file == source.file}
            if source is files.fitness:
                candidate = load_fitness(source, seed, keeping)
            else:
                candidate = load_candidate(source.name, source.source, source.file, seed, keeping=keeping)
        if any(function.stateful_line is not None for function in candidate.functions.values()):
            return candidate
        files.loaded[key] = candidate
    return files.loaded[key]


def load_and_assemble(source: CandidateSource, files: RunFiles, seed: int) -> Shaping:
    """Assemble a file's functions with the run's baseline; baselines are not filled in. Raises CandidateError."""
    if source.name in BASELINES:
        baseline = load(source, files, seed)
        return assemble(baseline, baseline)
    candidate = load(source, files, seed)
    return assemble(candidate, load(files.baselines[files.baseline], files, seed), files.shaper_types)


def make_group(source: CandidateSource, checked: Shaping, unshaped: Shaping, files: RunFiles, seed: int) -> Group:
    """Create a group with modules of its own, and the dimensions and programs that were found.

    Args:
        checked, unshaped: checked and traced shapings, the candidate's and the unshaped baseline's.
    """
    found = {name: getattr(checked, name) for name in ("widths", "action_dim", "effort", "components", "programs")}
    judged, alone = (load_and_assemble(own, files, seed) for own in (source, files.baselines[UNSHAPED]))
    functions = {
        kinds.CANDIDATE: judged.functions,
        kinds.UNSHAPED: alone.functions,
        kinds.RUN: _fitness(files, seed),
    }
    # the fitness programs of an evaluation were traced with actions of the candidate's width
    programs = {kinds.CANDIDATE: checked.programs, kinds.UNSHAPED: unshaped.programs, kinds.RUN: checked.programs}

    def judging(by_source: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        own = {stage: by_source[kind.judged_with] for stage, kind in STAGES.items()}
        return {stage: made[stage] for stage, made in own.items() if stage in made}

    evaluation = {"functions": judging(functions), "programs": judging(programs), "components": ()}
    training = replace(load_and_assemble(source, files, seed), **found)
    return Group(source.name, seed, training, replace(judged, **{**found, **evaluation}))


class Tracer:
    """Traces shapings, with results cached from other shapings and earlier processes; warns of untraced functions.

    Attributes:
        on: whether functions are compiled.
        cache: of results about the functions of the run's files, for the task of ``begin``.
        untraced: functions of the last shaping that cannot be traced.
    """

    def __init__(self, cfg: DictConfig, sources: Sequence[CandidateSource]) -> None:
        self.on = cfg.compile_shapers and kernels.available()
        self._texts = {source.file: source.source for source in sources}
        self._seed, self._memo = cfg.seed, Memo()
        self.untraced: list[Untraced] = []
        self._told: set[str] = set()

    def begin(self, task: Task | TaskSnapshot) -> None:
        """Use this task's state for tracing from now on."""
        self._memo.samples.clear()
        self.cache = self._memo.cache = FunctionCache(self._texts, task.state, task.constants, self._seed)

    def __call__(self, shaping: Shaping, task: Task | TaskSnapshot) -> Shaping:
        """Return the shaping with its programs."""
        if self.on:
            shaping, self.untraced = trace(shaping, task.state, task.constants, task, self._memo)
        return shaping

    def tell(self) -> None:
        """Warn of functions of the last shaping that have no program, once each: those of baselines are in many."""
        for refusal in map(str, self.untraced):
            if refusal not in self._told:
                log.warning("%s: it is not compiled, and runs more slowly", refusal)
            self._told.add(refusal)


def _snapshot(
    task: Task, files: RunFiles, tracer: Tracer, seed: int, device: torch.device
) -> tuple[TaskSnapshot, Shaping]:
    """Return a task's contract with a state one step into episodes of the unshaped task, and the unshaped shaping.

    Args:
        device: of the state; the task may be on another one.
    """
    contract = TaskContract.of(task)
    tracer.begin(task)
    unshaped = load_and_assemble(files.baselines[UNSHAPED], files, seed)
    unshaped = check(unshaped, task.state, task.constants, task)
    files.note_keepers(unshaped.functions.values())
    unshaped = tracer(unshaped, task)
    called = replace(unshaped, programs={})  # for one step compiling takes longer
    env = GroupedVecTask(task, GroupLayout(1, task.num_envs), [called], [seed])
    before = computed(task)
    env.reset()
    drawn = noise.uniform(seed, 1, noise.ACTION, *env.actions.shape, device=env.actions.device)
    env.advance(0.2 * drawn - 0.1)  # with zeros, torques and what is divided by them would be 0
    warn_of_frozen(task, before)
    if files.fitness is None and task.fitness_meaning:
        with user_input(), task_code(get_spec(task.name).folder):
            check_fitness_value(task, env.views[0])
    state = {key: x.to(device, copy=True) for key, x in env.state.items()}
    snapshot = TaskSnapshot(contract, state, task.constants, device, task.default_dof_target)
    tracer.begin(snapshot)
    return snapshot, unshaped


def _jailed(
    cfg: DictConfig, sources: Sequence[CandidateSource], files: RunFiles, task: TaskSnapshot
) -> dict[str, Candidate | CandidateError]:
    """Load, check and trace untrusted files in the jail; the results are programs without Python code.

    Raises:
        UserError: untrusted code cannot be confined on this machine.
    """
    log_confinement()
    baseline = files.baselines[cfg.baseline]
    shaping = check(load_and_assemble(baseline, files, cfg.seed), task.state, task.constants, task)
    files.note_keepers(shaping.functions.values())
    types = None if cfg.shaper_types is None else list(cfg.shaper_types)
    given = [(source.name, source.file, source.source) for source in sources if source.name not in BASELINES]
    sizes = (cfg.num_envs_per_candidate, cfg.evaluation.num_envs)
    return examine(given, task, task.state, baseline.source, shaping.action_dim, types, cfg.seed, sizes=sizes)


def _fitness(files: RunFiles, seed: int) -> dict[str, CandidateFunction]:
    """Return the function that replaces the task's own fitness in evaluations, if any, by stage."""
    if files.fitness is None:
        return {}
    return {KINDS[FITNESS].stage: load(files.fitness, files, seed).functions[FITNESS]}


def _check_fitness(files: RunFiles, task: TaskSnapshot, unshaped: Shaping, seed: int) -> None:
    """Call the fitness function once. Raises UserError."""
    try:
        for function in _fitness(files, seed).values():
            with files.slow.step("checking", function.file):
                trial = TrialState(task.state, task.constants, task)
                function = check_fitness(function, trial, task, unshaped.action_dim)
            files.note_keepers([function])
            _warn_if_stateful([function])
    except CandidateError as error:
        raise UserError(f"--fitness {error}") from None


def _warn_if_stateful(functions: Sequence[CandidateFunction]) -> None:
    """Warn of functions that may keep values between calls, which a resumed run does not restore."""
    for function in functions:
        if function.stateful_line is not None:
            place = f"{function.file}:{function.stateful_line}: in {function.type}"
            log.warning("%s: keeps values between calls, which --resume cannot restore", place)
