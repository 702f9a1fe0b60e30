"""Trained policies, read from a run folder."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from envcoder_bench.compat.torch_archive import ArchiveError, load_plain
from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.results.pairs import Pairs
from envcoder_bench.results.ranking import Ranked
from envcoder_bench.results.rows import Result, read_results
from envcoder_bench.run.fitness import recorded_meaning
from envcoder_bench.run.folder.ranked import compare_pairs, rank_run
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.seeds import run_seeds
from envcoder_bench.run.spec import CandidateSource, RunConfig, RunSpec
from envcoder_bench.tasks.base import UNTRAINED
from envcoder_bench.trainers.registry import trainer_class

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedRun:
    """A run folder with its config and its candidates as they were when the run began.

    Only ``spec`` executes code of the folder, and what uses it.

    Attributes:
        sources: the candidates by name, baselines included, in the order of the run.
        fitness: the run's --fitness file; None for the task's own fitness.
        fitness_meaning: what fitness measures, in one line.
        rows: the rows of results.csv; empty before the first evaluation.
    """

    folder: RunFolder
    cfg: RunConfig
    sources: Mapping[str, CandidateSource]
    fitness: CandidateSource | None
    fitness_meaning: str
    rows: list[Result]

    @cached_property
    def spec(self) -> RunSpec:
        """The run, with its task as it is now. Raises UserError if the task does not exist any more, or its code fails.

        The code of a task that is not a shipped or an installed one is executed.
        """
        spec = self.folder.resolve(self.cfg, [*self.sources.values()])
        self.folder.try_code(spec)
        return spec

    def source(self, name: str) -> CandidateSource:
        """Return a candidate. Raises UserError with near matches."""
        if name == UNTRAINED:
            raise UserError(f"{self.folder.path}: {UNTRAINED} is the policy before the first iteration: it has no file")
        if name not in self.sources:
            names = ", ".join(self.sources)
            raise UserError(f"{self.folder.path}: no candidate '{name}'{near_matches(name, self.sources)}; {names}")
        return self.sources[name]

    def row(self, name: str, seed: int) -> Result | None:
        """Return the result of a candidate with a seed, if there is one."""
        return next((row for row in self.rows if row.key == (name, seed)), None)

    @cached_property
    def ranked(self) -> list[Ranked]:
        """The ranking."""
        return rank_run(self.folder, self.cfg, self.rows)

    @cached_property
    def pairs(self) -> Pairs:
        """The differences of all pairs of candidates."""
        return compare_pairs(self.folder, self.cfg, self.rows, self.ranked)

    def best(self) -> str:
        """Return the best candidate that is not a baseline; if there is none, the best baseline.

        Raises UserError if no candidate has a fitness.
        """
        ranked = [row for row in self.ranked if row.rank is not None and row.candidate != UNTRAINED]
        if not ranked:
            raise UserError(f"{self.folder.path}: no candidate has a fitness yet")
        return next((row.candidate for row in ranked if not row.baseline), ranked[0].candidate)


@dataclass(frozen=True)
class Policy:
    """A trained policy.

    Attributes:
        module: observations ``(n, obs_dim)`` to actions ``(n, action_dim)``, deterministic, on the CPU, without
            gradients. The observations are the candidate's, as its function returns them, clipped to the task's
            ``clip_observations``; the environment clips the actions to the task's ``clip_actions``.
    """

    candidate: str
    seed: int
    file: Path
    module: torch.nn.Module
    obs_dim: int
    action_dim: int

    @torch.no_grad()
    def __call__(self, obs: torch.Tensor) -> torch.Tensor:
        return self.module(obs)


def open_run(path: str | Path) -> OpenedRun:
    """Read a run folder, of which no code is executed.

    Raises UserError if it is not a run folder, or files of it are damaged.
    """
    folder = RunFolder.open(Path(path), "")
    cfg, sources = folder.read()
    fitness, meaning = folder.read_fitness(cfg), recorded_meaning(folder, cfg)
    # results, which a run that goes on may lack
    rows: list[Result] = []
    if folder.results.is_file():
        with user_input():
            rows = read_results(folder.results)
        if folder.complete:
            folder.note_changed(folder.results)
    elif folder.complete:
        raise UserError(f"{folder.results} is missing, and the run is complete: restore it from a copy")
    for note in dict.fromkeys(folder.notes):
        log.warning("%s: %s", folder.path, note)
    return OpenedRun(folder, cfg, {source.name: source for source in sources}, fitness, meaning, rows)


def find_policy(run: OpenedRun, candidate: str, seed: int | None = None) -> tuple[int, Path]:
    """Return the seed and the file of a candidate's policy.

    Args:
        seed: None for the candidate's best seed.

    Raises:
        UserError: the candidate or the seed is not in the run, or its policy was not saved, with the reason.
    """
    run.source(candidate)
    seeds = list(run_seeds(run.cfg))
    if seed is not None and seed not in seeds:
        raise UserError(f"{run.folder.path}: no seed {seed}: the seeds of this run are {', '.join(map(str, seeds))}")
    home = run.folder.candidate(candidate)
    # the best seed; the lower one of two that are equal
    measured = [row for row in run.rows if row.candidate == candidate and row.measured]
    best = max(measured, key=lambda row: (row.fitness, -row.seed)).seed if measured else seeds[0]
    chosen = best if seed is None else seed
    file = home / (f"policy_seed_{chosen}.pth" if len(seeds) > 1 else "policy.pth")
    if not file.is_file():
        # why it was not saved
        row = run.row(candidate, chosen)
        failed = f": it failed: {row.error}" if row is not None and row.failed else ""
        unfinished = "" if failed or run.folder.complete else ": the run is not complete"
        raise UserError(
            f"{run.folder.path}: candidate '{candidate}' has no policy of seed {chosen}{failed or unfinished}"
        )
    return chosen, file


def median_seed(run: OpenedRun, candidate: str) -> int | None:
    """Return the seed of a candidate's median fitness, the lower one of two; None without a fitness."""
    measured = sorted((row.fitness, row.seed) for row in run.rows if row.candidate == candidate and row.measured)
    return measured[(len(measured) - 1) // 2][1] if measured else None


def load_policy(run: OpenedRun | str | Path, candidate: str, seed: int | None = None) -> Policy:
    """Read the policy of a candidate.

    Args:
        run: a run folder, or a result of ``open_run``.
        seed: one of the run's seeds; None for the candidate's best seed.

    Raises:
        UserError: as ``open_run`` and ``find_policy``; or the file is damaged, or does not fit the run's config.
    """
    run = run if isinstance(run, OpenedRun) else open_run(run)
    seed, file = find_policy(run, candidate, seed)
    try:
        exported = load_plain(file)
    except ArchiveError as error:
        raise UserError(f"{file} is refused: {error}; restore it from a copy") from error
    except Exception as error:  # an unpickler can raise anything
        raise UserError(f"{file} cannot be read: it is damaged, or not a policy") from error
    params = run.cfg.params
    try:
        module = trainer_class(params).load_policy(params, exported)
    except ValueError as error:
        raise UserError(f"{file}: {error}") from error
    module.requires_grad_(False).eval()
    layers = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]
    return Policy(candidate, seed, file, module, layers[0].in_features, layers[-1].out_features)
