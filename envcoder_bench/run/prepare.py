"""From candidate files to groups that can be trained: load, fill in from the baseline, check on a real state."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass, replace
from typing import Mapping, Sequence

import torch
from omegaconf import DictConfig
from torch import Tensor

from envcoder_bench.compile import kernels
from envcoder_bench.compile.cache import ProgramCache
from envcoder_bench.compile.program import Program
from envcoder_bench.compile.trace import Memo, Untraced, trace
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.jail.probing import announce
from envcoder_bench.jail.verdicts import judge
from envcoder_bench.run.fitness import load_fitness
from envcoder_bench.run.folder import CandidateSource
from envcoder_bench.run.slow import SlowFiles
from envcoder_bench.shaping.assemble import Shaping, assemble
from envcoder_bench.shaping.checking import Probe, check, check_fitness
from envcoder_bench.shaping.contract import FITNESS, Candidate, CandidateError, CandidateFunction
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.tasks.base import BASELINES, Task
from envcoder_bench.tasks.registry import baseline_path, make_task

log = logging.getLogger(__name__)

# what a candidate brings to its evaluation, and fitness beside actions of its width; the rest is the unshaped task's
OWN_STAGES = ("command", "observation", "fitness")


@dataclass(frozen=True)
class Group:
    """One candidate with one seed: what it trains with, and what it is evaluated with."""

    name: str
    seed: int
    shaping: Shaping
    evaluation: Shaping


def baseline_sources(task: str) -> list[CandidateSource]:
    """The task's baselines as candidates."""
    return [
        CandidateSource(name, str(path), path.read_text(encoding="utf-8"))
        for name, path in ((name, baseline_path(task, name)) for name in BASELINES)
    ]


def build_task(cfg: DictConfig, num_envs: int) -> Task:
    """The run's task with ``num_envs`` environments."""
    return make_task(cfg.task.name, cfg.task, num_envs, cfg.sim, cfg.device)


def prepare(
    cfg: DictConfig, sources: Sequence[CandidateSource], fitness: CandidateSource | None = None
) -> tuple[list[Group], dict[str, CandidateError]]:
    """Load and check every candidate.

    Args:
        fitness: the file whose ``compute_fitness`` evaluations measure; None: the task's own fitness.

    Returns:
        The groups to train, candidate by candidate and seed by seed, and the faults of the candidates that cannot be.

    Raises:
        UserError: the fitness file is at fault.
    """
    with SlowFiles() as slow:
        return _prepared(Loader(cfg, sources, fitness, slow), cfg, sources)


def _prepared(
    loader: Loader, cfg: DictConfig, sources: Sequence[CandidateSource]
) -> tuple[list[Group], dict[str, CandidateError]]:
    task = build_task(cfg, cfg.num_envs_per_candidate)
    state = loader.probe_state(task)
    loader.check_fitness(state, task)
    if cfg.untrusted:
        loader.jail([source for source in sources if source.name not in BASELINES], state, task)
    groups: list[Group] = []
    failures: dict[str, CandidateError] = {}
    told: set[str] = set()
    collecting = gc.isenabled()
    gc.disable()  # programs are made of a million small objects that stay: looking for garbage among them takes longer
    try:
        for source in sources:
            try:
                checked = loader.checked(source, state, task)
                groups += [loader.group(source, checked, seed) for seed in range(cfg.seed, cfg.seed + cfg.seeds)]
            except CandidateError as error:
                failures[source.name] = error
            else:
                _warn_of_memory(
                    (
                        *(checked.reward, checked.observation, checked.action),
                        *(checked.initial_state, checked.goal, checked.terminal),
                    )
                )
                for refusal in map(str, loader.untraced.get(source.name, [])):
                    if refusal not in told:  # a baseline's or the fitness file's function is in many
                        log.warning("%s: it is not compiled, and runs more slowly", refusal)
                    told.add(refusal)
    finally:
        if collecting:
            gc.enable()
    return groups, failures


def _warn_of_memory(functions: Sequence[CandidateFunction | None]) -> None:
    """Say which function may keep something between its calls: a resumed run begins without it."""
    for function in functions:
        if function is not None and function.memory_line is not None:
            place = f"{function.file}:{function.memory_line}: in {function.type}"
            log.warning("%s: keeps memory between calls, which --resume cannot restore", place)


def _load_candidate(source: CandidateSource, seed: int) -> Candidate:
    return load_candidate(source.name, source.source, source.file, seed)


class Loader:
    """Loads, checks and traces; no two groups share a module that may keep something between calls.

    Attributes:
        compiles: whether functions are compiled.
        untraced: for each candidate, the functions that cannot be compiled.
    """

    def __init__(
        self,
        cfg: DictConfig,
        sources: Sequence[CandidateSource],
        fitness: CandidateSource | None,
        slow: SlowFiles,
    ) -> None:
        self._cfg, self._fitness_source, self._slow = cfg, fitness, slow
        given = {source.name: source for source in sources}
        self._baselines = {b.name: given.get(b.name, b) for b in baseline_sources(cfg.task.name)}
        self._pure: dict[tuple[str, int], Candidate] = {}  # loaded files that keep nothing, by name and seed
        self.compiles = cfg.compile_shapers and kernels.available()
        self._texts: dict[str, str] = {}  # of all files, by their names
        self._memo = Memo()
        self._probe: Probe | None = None
        self._unshaped: Mapping[str, Program] = {}
        self._jailed: dict[str, Candidate | CandidateError] = {}
        self.untraced: dict[str, list[Untraced]] = {}

    def jail(self, sources: Sequence[CandidateSource], state: dict[str, Tensor], task: Task) -> None:
        """Have these files judged where they can do no harm: here, they are programs without code from now on.

        Raises:
            UserError: they cannot be confined on this machine.
        """
        announce()
        cfg, baseline = self._cfg, self._baselines[self._cfg.baseline]
        shaping = check(self.shaping(baseline, cfg.seed), state, task.constants, task)
        types = None if cfg.shaper_types is None else list(cfg.shaper_types)
        given = [(source.name, source.file, source.source) for source in sources]
        sizes = (cfg.num_envs_per_candidate, cfg.evaluation.num_envs)
        self._jailed = judge(given, task, state, baseline.source, shaping.action_dim, types, cfg.seed, sizes=sizes)

    def candidate(self, source: CandidateSource, seed: int) -> Candidate:
        """A source as a loaded file, or what the jail made of it. Raises CandidateError."""
        key = (source.name, seed)
        if source.name in self._jailed:
            jailed = self._jailed[source.name]
            if isinstance(jailed, CandidateError):
                raise jailed
            return jailed
        if key in self._pure:
            return self._pure[key]
        self._texts[source.file] = source.source
        load = load_fitness if source is self._fitness_source else _load_candidate
        with self._slow.step("loading", source.file):
            candidate = load(source, seed)
        if all(function.memory_line is None for function in candidate.functions.values()):
            self._pure[key] = candidate
        return candidate

    def shaping(self, source: CandidateSource, seed: int) -> Shaping:
        # a baseline is whole in itself; a candidate is what it defines over the run's baseline
        if source.name in BASELINES:
            baseline = self.candidate(source, seed)
            return assemble(baseline, baseline)
        baseline = self._baselines[self._cfg.baseline]
        return assemble(self.candidate(source, seed), self.candidate(baseline, seed), self._cfg.shaper_types)

    def checked(self, source: CandidateSource, state: dict[str, Tensor], task: Task) -> Shaping:
        """A candidate's shaping with what checking and tracing find.

        Raises:
            CandidateError: it cannot be trained.
        """
        if self._probe is None:
            self._probe = Probe(state, task.constants, task)
        shaping = self.shaping(source, self._cfg.seed)
        with self._slow.step("checking", source.file):
            shaping = check(shaping, state, task.constants, task, self._probe)
        return self._traced(source, replace(shaping, fitness=self.fitness(self._cfg.seed)), state, task)

    def fitness(self, seed: int) -> CandidateFunction | None:
        """What evaluations measure instead of the task's own fitness."""
        source = self._fitness_source
        return None if source is None else self.candidate(source, seed).functions[FITNESS]

    def check_fitness(self, state: dict[str, Tensor], task: Task) -> None:
        """Call the fitness function once. Raises UserError."""
        try:
            function = self.fitness(self._cfg.seed)
            if function is not None:
                with self._slow.step("checking", function.file):
                    check_fitness(function, Probe(state, task.constants, task), task, self._unshaped_action_dim)
                _warn_of_memory([function])
        except CandidateError as error:
            raise UserError(f"--fitness {error}") from None

    def _traced(self, source: CandidateSource, shaping: Shaping, state: dict[str, Tensor], task: Task) -> Shaping:
        if not self.compiles:
            return shaping
        shaping, self.untraced[source.name] = trace(shaping, state, task.constants, task, self._memo)
        return shaping

    def group(self, source: CandidateSource, checked: Shaping, seed: int) -> Group:
        """A group's own modules, with the dimensions that the check found."""
        found = {name: getattr(checked, name) for name in ("obs_dim", "action_dim", "effort", "components", "programs")}
        programs = {stage: program for stage, program in self._unshaped.items() if stage not in OWN_STAGES}
        programs.update({stage: program for stage, program in checked.programs.items() if stage in OWN_STAGES})
        alone = self.shaping(self._baselines["unshaped"], seed)
        judging: dict[str, object] = {
            name: getattr(alone, name) for name in ("reward", "initial_state", "goal", "terminal")
        }
        judging["fitness"] = self.fitness(seed)
        return Group(
            source.name,
            seed,
            replace(self.shaping(source, seed), **found),
            replace(self.shaping(source, seed), **{**found, **judging, "components": (), "programs": programs}),
        )

    def probe_state(self, task: Task) -> dict[str, Tensor]:
        """A real state to check functions on: one step into episodes of the unshaped task."""
        unshaped = self._baselines["unshaped"]
        shaping = check(self.shaping(unshaped, self._cfg.seed), task.state, task.constants, task)
        self._memo.cache = self._new_cache(task.state, task)
        self._unshaped_action_dim = shaping.action_dim
        self._unshaped = self._traced(unshaped, shaping, task.state, task).programs
        env = GroupedVecTask(task, GroupLayout(1, task.num_envs), [shaping], [self._cfg.seed])
        env.reset()
        env.advance(torch.zeros_like(env.actions))
        state = {key: x.clone() for key, x in env.state.items()}
        self._memo.samples.clear()  # from here on functions are traced on this state
        self._memo.cache = self._new_cache(state, task)
        return state

    def _new_cache(self, state: dict[str, Tensor], task: Task) -> ProgramCache:
        return ProgramCache(self._texts, state, task.constants, self._cfg.seed)
