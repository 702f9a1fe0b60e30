"""From candidate files to groups that can be trained: load, fill in from the baseline, check on a real state."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Dict, List, Sequence, Tuple

import torch
from omegaconf import DictConfig
from torch import Tensor

from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.groups import GroupLayout
from envcoder_bench.run_folder import CandidateSource
from envcoder_bench.shaping.assemble import Shaping, assemble
from envcoder_bench.shaping.checking import check
from envcoder_bench.shaping.contract import Candidate, CandidateError
from envcoder_bench.shaping.loading import load_candidate
from envcoder_bench.tasks.base import BASELINES, Task
from envcoder_bench.tasks.registry import baseline_path, make_task


@dataclass(frozen=True)
class Group:
    """One candidate with one seed: what it trains with, and what it is evaluated with."""

    name: str
    seed: int
    shaping: Shaping
    evaluation: Shaping


def baseline_sources(task: str) -> List[CandidateSource]:
    """The task's baselines as candidates."""
    return [
        CandidateSource(name, str(path), path.read_text(encoding="utf-8"))
        for name, path in ((name, baseline_path(task, name)) for name in BASELINES)
    ]


def build_task(cfg: DictConfig, num_envs: int) -> Task:
    """The run's task with ``num_envs`` environments."""
    return make_task(cfg.task.name, cfg.task, num_envs, cfg.sim, cfg.device)


def prepare(cfg: DictConfig, sources: Sequence[CandidateSource]) -> Tuple[List[Group], Dict[str, CandidateError]]:
    """Load and check every candidate.

    Returns:
        The groups to train, candidate by candidate and seed by seed, and the faults of the candidates that cannot be.
    """
    loader = _Loader(cfg, sources)
    task = build_task(cfg, cfg.num_envs_per_candidate)
    state = loader.probe_state(task)
    groups: List[Group] = []
    failures: Dict[str, CandidateError] = {}
    for source in sources:
        try:
            checked = check(loader.shaping(source, cfg.seed), state, task.constants, task)
            groups += [loader.group(source, checked, seed) for seed in range(cfg.seed, cfg.seed + cfg.seeds)]
        except CandidateError as error:
            failures[source.name] = error
        else:
            _warn_of_memory(checked)
    return groups, failures


def _warn_of_memory(shaping: Shaping) -> None:
    """Say which function may keep something between its calls: a resumed run begins without it."""
    for function in (shaping.reward, shaping.observation, shaping.action, shaping.terminal):
        if function is not None and function.memory_line is not None:
            place = f"{function.file}:{function.memory_line}: in {function.type}"
            print(f"{place}: keeps memory between calls, which --resume cannot restore", file=sys.stderr)


class _Loader:
    """Loads modules afresh for every group, so that no two groups share Python state."""

    def __init__(self, cfg: DictConfig, sources: Sequence[CandidateSource]) -> None:
        self._cfg = cfg
        given = {source.name: source for source in sources}
        self._baselines = {b.name: given.get(b.name, b) for b in baseline_sources(cfg.task.name)}

    def _load(self, source: CandidateSource, seed: int) -> Candidate:
        return load_candidate(source.name, source.source, source.file, seed)

    def shaping(self, source: CandidateSource, seed: int) -> Shaping:
        # a baseline is whole in itself; a candidate is what it defines over the run's baseline
        if source.name in BASELINES:
            baseline = self._load(source, seed)
            return assemble(baseline, baseline)
        return assemble(
            self._load(source, seed), self._load(self._baselines[self._cfg.baseline], seed), self._cfg.shaper_types
        )

    def group(self, source: CandidateSource, checked: Shaping, seed: int) -> Group:
        """A group's own modules, with the dimensions that the check found."""
        found = {name: getattr(checked, name) for name in ("obs_dim", "action_dim", "effort", "components")}
        alone = self.shaping(self._baselines["unshaped"], seed)
        unshaped = {name: getattr(alone, name) for name in ("reward", "initial_state", "goal", "terminal")}
        return Group(
            source.name,
            seed,
            replace(self.shaping(source, seed), **found),
            replace(self.shaping(source, seed), **{**found, **unshaped, "components": ()}),
        )

    def probe_state(self, task: Task) -> Dict[str, Tensor]:
        """A real state to check functions on: one step into episodes of the unshaped task."""
        shaping = check(self.shaping(self._baselines["unshaped"], self._cfg.seed), task.state, task.constants, task)
        env = GroupedVecTask(task, GroupLayout(1, task.num_envs), [shaping], [self._cfg.seed])
        env.reset()
        env.advance(torch.zeros_like(env.actions))
        return {key: x.clone() for key, x in env.state.items()}
