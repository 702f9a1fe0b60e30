"""Searches with equal budgets: evolution, random changes without selection, and the human baseline.

The searches of a task proceed together: the candidates that all of them propose for a round train in one batch, with
the same seeds. A stopped study proposes the same again, and reads the runs of these candidates that are complete.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from bench import records
from bench.records import Record
from omegaconf import DictConfig

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.messages import muted
from envcoder_bench.report.words import without_folders
from envcoder_bench.run.devices import use_this_machine
from envcoder_bench.run.folder import CandidateSource
from envcoder_bench.run.inputs import run_config
from envcoder_bench.run.plan import release
from envcoder_bench.run.prepare import prepare
from envcoder_bench.run.run_files import baseline_sources
from envcoder_bench.run.run_result import RunResult
from envcoder_bench.search.evolve import NEW_TERM, EvolveProposer
from envcoder_bench.search.folder import Round
from envcoder_bench.search.providers.choice import RANDOM
from envcoder_bench.search.records import Archive, Attempt, Proposal
from envcoder_bench.search.rounds import check_and_repair, record_round
from envcoder_bench.search.settings import compose_settings
from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.tasks.base import BASELINE_FILES, UNSHAPED
from envcoder_bench.tasks.contract import task_contract

from .components import variants
from .lengths import SPARSE_REWARD
from .training import Study, digest, folder_name

TASKS = ("Ant", "Humanoid", "Anymal", "AllegroHand")
APART = 1000  # seeds of the random choices of two searches
REFERENCE_SEED = 500_000
BEST = "best"


def evolve(study: Study) -> None:
    """Run all searches of all tasks and methods, and train the sparse and the human reward with seeds of their own."""
    args = study.args
    for task in args.tasks or TASKS:
        sizes = {"num_envs_per_candidate": args.envs, "learning_iterations": args.iterations}
        about = {"kind": "evolve", "task": task, "envs": args.envs, "iterations": args.iterations}
        text = variants(task)[SPARSE_REWARD]
        assert text is not None
        settings = {**sizes, "evaluation.points": 1, "evaluation.final_episodes": args.episodes, "save_state": False}
        study.train({**about, "role": "reference"}, {SPARSE_REWARD: text}, args.final_seeds, REFERENCE_SEED, **settings)
        for kinds in args.kinds:
            _searches(study, {**about, "role": "search", "kinds": kinds}, settings)


@dataclass
class _Search:
    """A search in progress; ``about`` are the facts of its record."""

    about: Record
    proposer: EvolveProposer
    archive: Archive

    def batched(self, name: str) -> str:
        """Return the name of one of its candidates in a batch."""
        return f"{self.about['method']}_{self.about['search']}_{name}"

    def own(self, rows: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return the rows of the baselines and of its own candidates in a batch, with its own names."""
        mine = {**{name: name for name in BASELINE_FILES}, **{self.batched(name): name for name in names}}
        return [replace(row, candidate=mine[row.candidate]) for row in rows if row.candidate in mine]

    def best(self) -> dict[str, str]:
        """Return the name and the text of its best candidate so far; empty if there is none."""
        best = self.archive.best()
        return {} if best is None else {best.name: best.source}


def _searches(study: Study, about: Record, sizes: Mapping[str, Any]) -> None:
    """Run the searches that are not recorded, and record them."""
    args, task = study.args, about["task"]
    about = {**about, "rounds": args.rounds, "per_round": args.per_round, "seeds": args.final_seeds}
    about.update(batch=True, new_terms=NEW_TERM)  # other searches are recorded without these
    about.update(overrides=list(args.overrides), settings=dict(sizes))
    facts = [{**about, "method": method, "search": k} for k in range(args.searches) for method in args.methods]
    types = [REWARD] if about["kinds"] == "reward" else None
    facts = [own for own in facts if not study.recorded(own)]
    if not facts or study.stop.by is not None:
        return
    sizes = {**sizes, "shaper_types": types}
    cfg = run_config(task, study.overrides(**sizes))
    use_this_machine(cfg)  # candidates are checked in this process, wherever they train
    searches = [_begin(own, types, cfg) for own in facts]
    path = args.work / folder_name({**about, "searches": [own.batched("") for own in searches]})

    def train(name: str, texts: Sequence[Mapping[str, str]], **more: Any) -> RunResult:
        batch = {s.batched(own): text for s, mine in zip(searches, texts) for own, text in mine.items()}
        if not batch:
            raise UserError(f"evolve, {name}: no search has a candidate that can be trained")
        print(f"{path.name}/{name} ...", flush=True)
        return study.run(task, batch, path / f"{name}_{digest(batch)}", **sizes, **more)

    for number in range(1, args.rounds + 1):
        rounds = _propose(cfg, searches, number, args.per_round)
        texts = [{**{p.name: p.source for p in r.ready}, **s.best()} for s, r in zip(searches, rounds)]
        result = train(f"round_{number}", texts, seed=number, seeds=1)
        if not result.complete:
            return
        points = result.evaluations()
        for search, round, own in zip(searches, rounds, texts):
            rows = search.own(result.rows, list(own)), search.own(points, list(own))
            search.archive = record_round(search.archive, round, *rows)
    bests = [search.best() for search in searches]
    result = train("final", bests, seed=args.rounds + 1, seeds=args.final_seeds)
    if result.complete:
        for search, best in zip(searches, bests):
            study.add({**_outcome(search, best, result), **records.describe(cfg.device)})


def _begin(about: Record, types: Sequence[str] | None, cfg: DictConfig) -> _Search:
    seed, selection = APART * (about["search"] + 1), about["method"] != RANDOM
    baselines = {b.name: Attempt(b.name, 0, b.source) for b in baseline_sources(about["task"])}
    archive = Archive([], baselines, cfg.baseline)
    state = task_contract(cfg.task).state
    return _Search(about, EvolveProposer(types, None, seed, [UNSHAPED], selection, state), archive)


def _outcome(search: _Search, best: Mapping[str, str], result: RunResult) -> Record:
    """Return the record of a search after the final training."""
    fitness: dict[str, list[float | None]] = {}
    for row in search.own(result.rows, list(best)):
        name = row.candidate if row.candidate in BASELINE_FILES else BEST
        fitness.setdefault(name, []).append(row.fitness if row.measured else None)
    attempts = search.archive.attempts
    made = {"evaluations": sum(bool(attempt.by_seed) for attempt in attempts), "candidates": len(attempts)}
    return {**search.about, "fitness": {BEST: [], **fitness}, **made, "complete": True, "last": True}


def _propose(cfg: DictConfig, searches: Sequence[_Search], number: int, count: int) -> list[Round]:
    """Return the checked candidates of a round of each search; their first check is one for all."""
    proposals = [search.proposer.propose(search.archive, number, count) for search in searches]
    errors = _errors(cfg, {s.batched(p.name): p.source for s, own in zip(searches, proposals) for p in own})
    rounds, repairs = [], compose_settings([])[0].repair
    for search, own in zip(searches, proposals):
        known = {p.name: errors[name] for p in own if (name := search.batched(p.name)) in errors}
        checker = _Checker(cfg, known)
        rounds.append(check_and_repair(number, own, search.proposer, search.archive, checker, repairs))
    return rounds


class _Checker:
    """Returns known errors at first, and checks the candidates of later calls."""

    def __init__(self, cfg: DictConfig, known: dict[str, str]) -> None:
        self._cfg = cfg
        self._known: dict[str, str] | None = known

    def errors(self, proposals: Sequence[Proposal]) -> dict[str, str]:
        known, self._known = self._known, None
        return _errors(self._cfg, {p.name: p.source for p in proposals}) if known is None else known


def _errors(cfg: DictConfig, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the errors of candidates that cannot be trained, by name."""
    with muted():  # warnings are shown when the candidate is trained
        _, failed = prepare(cfg, [CandidateSource(name, f"{name}.py", text) for name, text in texts.items()])
    errors = {name: without_folders(str(error)) for name, error in failed.items()}
    failed.clear()  # frames of their tracebacks keep memory allocated
    release(cfg.device)
    return errors
