"""Preparation of groups from candidate files: load, assemble, check, trace, group.

Each step is a function of plain data: files, and a ``TaskSnapshot`` of a small simulation of the task.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from envcoder_bench.compile.terms import scaled
from envcoder_bench.core import noise
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.purposes import Purpose
from envcoder_bench.core.torch_settings import ALONE, settings_kept
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.jail.client import examine
from envcoder_bench.jail.probing import log_confinement
from envcoder_bench.run.folder.checkpoint import GroupKey
from envcoder_bench.run.prepare.cached import CachedCheck, Tracer
from envcoder_bench.run.prepare.environments import build_probe
from envcoder_bench.run.prepare.run_files import (
    RunFiles,
    SlowFiles,
    baseline_sources,
    fitness_of,
    load_and_assemble,
)
from envcoder_bench.run.seeds import run_seeds
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.shaping import kinds
from envcoder_bench.shaping.checking import TrialState, check, check_fitness
from envcoder_bench.shaping.contract import (
    Candidate,
    CandidateError,
    CandidateFunction,
    Fault,
    Shaping,
    functions_of,
)
from envcoder_bench.shaping.dicts import with_dicts
from envcoder_bench.shaping.faults import of_candidate
from envcoder_bench.shaping.kinds import KINDS, STAGES
from envcoder_bench.shaping.source import REWARD_FACTORS
from envcoder_bench.shaping.variants import term_factors
from envcoder_bench.tasks.base import BASELINES, UNSHAPED, Task
from envcoder_bench.tasks.contract import TaskContract, TaskSnapshot
from envcoder_bench.tasks.task_code import check_fitness_value, computed, task_code, warn_of_frozen
from envcoder_bench.trainers.base import Widths
from envcoder_bench.trainers.registry import trainer_class
from mujoco_batches.process import collection_paused

log = logging.getLogger(__name__)
Faults = dict[str, Fault]


@dataclass(frozen=True)
class Group:
    """A candidate with a seed: its shapings for training and for evaluation, and its values of the trainer's keys."""

    name: str
    seed: int
    shaping: Shaping
    evaluation: Shaping
    overrides: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> GroupKey:
        return self.name, self.seed

    @property
    def widths(self) -> Widths:
        """Of its observation, its action and, if it has one of its own, its critic's observation."""
        critic_dim = self.shaping.critic_dim
        return self.shaping.obs_dim, self.shaping.action_dim, *([critic_dim] if critic_dim else [])


def prepare(
    spec: RunSpec,
    probe: Task | None = None,
    checked: Callable[[Mapping[str, Widths]], RunConfig] | None = None,
) -> tuple[list[Group], Faults]:
    """Load, assemble, check, trace and group every candidate of a run.

    Args:
        probe: a result of ``build_probe`` in its first state; None: created here.
        checked: called with the widths of all candidates that can be trained, before they are grouped by seeds; it
            returns the config with the number of seeds.

    Returns:
        The groups to train, candidate by candidate and seed by seed, and the faults of all other candidates.

    Raises:
        UserError: the fitness file or a baseline that all candidates need has a fault.
    """
    with SlowFiles() as slow:
        context = make_context(spec, slow, probe)
        with collection_paused():  # programs have a million small long-lived objects
            return _groups(spec, context, checked)


def prepare_one(spec: RunSpec, source: CandidateSource, seed: int, baselines: Sequence[CandidateSource] = ()) -> Group:
    """Load, check and trace one candidate or baseline, outside of a run.

    Args:
        spec: its seeds and candidates are not used.
        baselines: a run's copies of the baselines; by default the task's own files.

    Raises:
        UserError: the candidate has a fault; the message has file, line and remedy.
    """
    sources = (*(baseline for baseline in baselines if baseline.name != source.name), source)
    spec = replace(spec.changed(seed=seed, seeds=1), sources=sources)
    with ALONE, settings_kept(), user_input(), SlowFiles() as slow:
        context = make_context(spec, slow)
        try:
            shaping = check_and_trace(source, context, seed)
        except CandidateError as error:
            raise UserError(f"candidate {source.name} cannot be used: {error}") from error
        return make_group(source, shaping, context, seed)


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


def make_context(spec: RunSpec, slow: SlowFiles, probe: Task | None = None) -> PrepareContext:
    """Read the task's contract, load the baselines, and examine untrusted files. Arguments as of ``prepare``."""
    cfg, sources, fitness = spec.config, spec.sources, spec.fitness
    by_name = {source.name: source for source in sources}
    baselines = {shipped.name: by_name.get(shipped.name, shipped) for shipped in baseline_sources(spec.task, cfg.task)}
    complete = None if spec.task.sections is None else spec.task.sections.complete
    files = RunFiles(baselines, cfg.baseline, fitness, cfg.shaper_types, slow, complete=complete)
    tracer = Tracer(cfg, [*baselines.values(), *sources, *([] if fitness is None else [fitness])])
    try:
        with user_input():  # the task's code and numbers are user input
            probe = probe or build_probe(spec)
        task, unshaped = _snapshot(spec, probe, files, tracer)
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
    with of_candidate(source.file):
        shaping = load_and_assemble(source, files, seed)
        with files.slow.step("checking", source.file):
            shaping = context.check(shaping)
        files.note_keepers(shaping.functions.values())
        shaping = replace(shaping, stages={**shaping.stages, **fitness_of(files, seed)})
        traced = context.tracer(shaping, task)
        files.note_called(function for stage, function in shaping.functions.items() if stage not in traced.programs)
        return _with_factors(source, traced, context)


def _with_factors(source: CandidateSource, shaping: Shaping, context: PrepareContext) -> Shaping:
    """Return a candidate's shaping with the factors that its file declares for the terms of its reward."""
    factors, types = term_factors(source.source, source.file), context.files.shaper_types
    if factors and shaping.stages["reward"].file == source.file:
        return scaled(shaping, factors, context.task)
    if factors and (types is None or kinds.REWARD in types):
        raise CandidateError(f"{REWARD_FACTORS} is for {kinds.REWARD}, which it does not define", source.file)
    return shaping


def _groups(
    spec: RunSpec, context: PrepareContext, checked: Callable[[Mapping[str, Widths]], RunConfig] | None
) -> tuple[list[Group], Faults]:
    cfg = spec.config
    first: list[tuple[CandidateSource, Shaping, Group]] = []  # the group of the first seed
    faults: Faults = {}
    for source in spec.sources:
        try:
            shaping = check_and_trace(source, context, cfg.seed)
            first.append((source, shaping, make_group(source, shaping, context, cfg.seed)))
        except CandidateError as error:
            faults[source.name] = error.fault
        else:
            _warn_if_stateful([function for function in shaping.functions.values() if KINDS[function.type].shaper])
            context.tracer.tell()
    if checked is not None:
        cfg = checked({source.name: group.widths for source, _, group in first})
    groups: list[Group] = []
    for source, shaping, group in first:
        others = [seed for seed in run_seeds(cfg) if seed != cfg.seed]
        try:
            more = [make_group(source, shaping, context, seed) for seed in others]
        except CandidateError as error:  # its text is read again with each seed
            faults[source.name] = error.fault
        else:
            groups += [group, *more]
    return groups, faults


def make_group(source: CandidateSource, checked: Shaping, context: PrepareContext, seed: int) -> Group:
    """Create a group with modules of its own, and the dimensions and programs of ``checked``, a traced shaping.

    Raises CandidateError if the file cannot be loaded again.
    """
    files, unshaped = context.files, context.unshaped
    # what was found in checking and tracing, which holds for every seed
    kept = {name: getattr(checked, name) for name in ("widths", "action_dim", "effort", "components", "programs")}
    with of_candidate(source.file):
        judged, again = (load_and_assemble(source, files, seed) for _ in range(2))
    of_unshaped = load_and_assemble(files.baselines[UNSHAPED], files, seed)
    stages = {
        kinds.CANDIDATE: judged.stages,
        kinds.UNSHAPED: of_unshaped.stages,
        kinds.RUN: fitness_of(files, seed),
    }
    # the fitness programs of an evaluation were traced with actions of the candidate's width
    programs = {kinds.CANDIDATE: checked.programs, kinds.UNSHAPED: unshaped.programs, kinds.RUN: checked.programs}

    def judging(by_source: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        by_stage = {stage: by_source.get(kind.judged_with, {}) for stage, kind in STAGES.items()}
        return {stage: values[stage] for stage, values in by_stage.items() if stage in values}

    # an evaluation is of the unshaped task, seen and moved by the candidate: its own observations and actions
    evaluation = {"stages": judging(stages), "programs": judging(programs), "components": ()}
    training = replace(again, **kept)
    if checked.functions["reward"].program is not None:  # which has no memory, so that groups can share it
        training = training.with_functions({**training.functions, "reward": checked.functions["reward"]})
    return Group(source.name, seed, training, replace(judged, **{**kept, **evaluation}), source.overrides)


def _snapshot(spec: RunSpec, task: Task, files: RunFiles, tracer: Tracer) -> tuple[TaskSnapshot, Shaping]:
    """Return a task's contract with a state one step into episodes of the unshaped task, and the unshaped shaping.

    The state is on the run's device; the task may be on another one.
    """
    seed, device = spec.config.seed, torch.device(spec.config.device)
    # the contract
    contract = TaskContract.of(task)
    params = spec.config.params
    with user_input():
        refusal = trainer_class(params).critic_refusal(params)
    if refusal is not None:
        contract = replace(contract, refusals={**contract.refusals, kinds.CRITIC_OBSERVATION: refusal})
    tracer.begin(task)
    # the unshaped baseline
    unshaped = load_and_assemble(files.baselines[UNSHAPED], files, seed)
    unshaped = check(unshaped, task.state, task.constants, task)
    files.note_keepers(unshaped.functions.values())
    unshaped = tracer(unshaped, task)
    files.note_called(function for stage, function in unshaped.functions.items() if stage not in unshaped.programs)
    # one step into an episode, where no quantity is at its initial value
    called = replace(unshaped, programs={})  # compiling takes longer than one step
    env = GroupedVecTask(task, GroupLayout(1, task.num_envs), [called], [seed])
    before = computed(task)
    env.reset()
    drawn = noise.uniform(seed, 1, Purpose.ACTION, *env.actions.shape, device=env.actions.device)
    env.advance(0.2 * drawn - 0.1)  # zeros would make torques 0, which may be divisors
    warn_of_frozen(task, before)
    if files.fitness is None and task.fitness_meaning:
        with user_input(), task_code(spec.task.folder):
            check_fitness_value(task, env.views[0])
    task.refresh_state()
    state = {key: x.to(device, copy=True) for key, x in env.state.items()}
    snapshot = TaskSnapshot(contract, state, task.constants, device, task.default_dof_target, task.fitness)
    tracer.begin(snapshot)
    return snapshot, unshaped


def _jailed(
    cfg: RunConfig, sources: Sequence[CandidateSource], files: RunFiles, task: TaskSnapshot
) -> dict[str, Candidate | Fault]:
    """Load, check and trace untrusted files in the jail; the results are programs without Python code.

    Raises UserError if untrusted code cannot be confined on this machine.
    """
    log_confinement()
    baseline = files.baselines[cfg.baseline]
    shaping = check(load_and_assemble(baseline, files, cfg.seed), task.state, task.constants, task)
    files.note_keepers(shaping.functions.values())
    types = None if cfg.shaper_types is None else list(cfg.shaper_types)
    sizes = (cfg.num_envs_per_candidate, cfg.evaluation.num_envs)
    untrusted = [source for source in sources if source.name not in BASELINES]
    texts = [(source.name, source.file, source.source) for source in untrusted]
    complete, state, width = files.complete, task.state, shaping.action_dim
    reads_dicts = complete is not None
    results = examine(texts, task, state, baseline.source, width, types, cfg.seed, None, sizes, reads_dicts)
    for name, candidate in results.items():
        if complete is not None and isinstance(candidate, Candidate):
            try:
                with of_candidate(candidate.file):
                    results[name] = with_dicts(candidate, complete, cfg.seed)
            except CandidateError as error:
                results[name] = error.fault
    return results


def _check_fitness(files: RunFiles, task: TaskSnapshot, unshaped: Shaping, seed: int) -> None:
    """Call the fitness function once. Raises UserError."""
    try:
        for function in functions_of(fitness_of(files, seed)).values():
            with files.slow.step("checking", function.file):
                trial = TrialState(task.state, task.constants, task)
                function = check_fitness(function, trial, task, unshaped.action_dim)
            files.note_keepers([function])
            _warn_if_stateful([function])
    except CandidateError as error:
        raise UserError(f"--fitness {error}") from None


def _warn_if_stateful(functions: Sequence[CandidateFunction]) -> None:
    for function in functions:
        if function.stateful_line is not None:
            log.warning("%s", stateful_note(function))


def stateful_note(function: CandidateFunction) -> Fault:
    """Return a remark on a function that keeps values between calls."""
    message = "keeps values between calls, which --resume cannot restore"
    return Fault(message, function.file, function.stateful_line, function.type)
