"""score.json: a score with all numbers that it is made of, from which it can be computed again."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from envcoder_bench import __version__
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import file_digest
from envcoder_bench.core.words import counted
from envcoder_bench.results.logs import read_points
from envcoder_bench.results.pairs import BETTER, CANNOT_TELL, WORSE
from envcoder_bench.run.folder.policies import OpenedRun
from envcoder_bench.score.folder import ScoreConfig
from envcoder_bench.score.protocol import CANARY, HUMAN, UNSHAPED, VERSION
from envcoder_bench.score.run import DUPLICATE, SearchOutcome, TaskOutcome
from envcoder_bench.score.scoring import Estimate, Number, TaskValues, Values, human_score, mean_estimate, score
from envcoder_bench.serve.documents import Document
from envcoder_bench.tasks.base import UNTRAINED

NAN = math.nan
REACHED = 0.9  # share of what a policy learns, at which its env-steps are counted


@dataclass(frozen=True, kw_only=True)
class RunScore:
    """A search of a task.

    Attributes:
        winner, source: name and SHA-256 of the text of the candidate that the search chose; empty if none trained.
        transcript: SHA-256 of the search's transcript; empty without a model.
        fitness: of the winner by held-out seed; null where it failed, which counts as unshaped.
        score: (fitness - unshaped) / (best reference - unshaped).
        verdict: the winner against human: better, worse or cannot tell.
        before_training: fitness of the winner's untrained policy.
        learned: the share of its gain over the human baseline's untrained policy that training adds; 0 for a
            controller that needs no training.
        first_round, gain: score of the best candidate of the first round, and what the winner is above it.
        candidates: number of candidates that the model wrote.
        executable, executable_at_first: the share that could be trained, and without a repair.
        duplicates, hacked: number of copies and near-copies, also of references, and of candidates that exploit their
            reward.
        steps_to_90: env-steps at the first evaluation with 90 % of the winner's gain over the human baseline's
            untrained policy.
        tokens, cost, device_minutes: of the search; the cost in US dollars, null if unknown. Of an agent the tokens of
            calls and answers.
    """

    winner: str = ""
    source: str = ""
    transcript: str = ""
    fitness: Sequence[float | None] = ()
    score: Number = NAN
    verdict: str = CANNOT_TELL
    before_training: Number = NAN
    learned: Number = NAN
    first_round: Number = NAN
    gain: Number = NAN
    candidates: int = 0
    executable: Number = NAN
    executable_at_first: Number = NAN
    duplicates: int = 0
    hacked: int = 0
    steps_to_90: Number = NAN
    tokens: int = 0
    cost: float | None = 0.0
    device_minutes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """A task of a score.

    Attributes:
        references: fitness by held-out seed of human, unshaped and the best that is known.
        best: the reference that is 1.
        separates: whether it is above unshaped by three deviations of seeds; otherwise the task is not in the score.
    """

    name: str
    description: str
    fitness_meaning: str
    seeds: Sequence[int]
    references: Mapping[str, Sequence[float]]
    best: str
    separates: bool
    human: Number
    runs: Sequence[RunScore]

    @property
    def values(self) -> TaskValues:
        """The numbers from which the score is computed."""
        unshaped = np.asarray(self.references[UNSHAPED], dtype=np.float64)
        others = {name: np.asarray(x, dtype=np.float64) for name, x in self.references.items() if name != UNSHAPED}
        rows = [_filled(run.fitness, self.references[UNSHAPED]) for run in self.runs]
        return TaskValues(unshaped, others, np.asarray(rows, dtype=np.float64))


@dataclass(frozen=True, kw_only=True)
class Score(Document):
    """``envcoder-bench score-model``: how well a model shapes.

    Attributes:
        protocol, canary: version of the protocol; a text by which published scores can be found in training data.
        changes: what differs from the protocol; with any change the score is not comparable with others.
        score: interquartile mean over all tasks and runs, with its 95 % interval: 0 is unshaped, 1 the best reference.
        human: the score of the human baselines.
        better, cannot_tell, worse: share of the searches by the verdict of their winner against human.
        gain: of the winners over the best of their first rounds.
        config: what was asked; seeds that are 0 there were drawn. A task has its held-out seeds, and an unseen one its
            own in its name.
    """

    kind: Literal["score"] = "score"
    protocol: str = VERSION
    canary: str = CANARY
    package: str = __version__
    model: str
    track: str
    budget: str
    changes: Sequence[str]
    score: Estimate
    human: Number
    better: Number
    cannot_tell: Number
    worse: Number
    gain: Estimate
    tasks: Sequence[TaskScore]
    config: Mapping[str, Any]


def score_document(config: ScoreConfig, outcomes: Sequence[TaskOutcome]) -> Score:
    """Return the score of all tasks."""
    tasks = [_task(config, outcome) for outcome in outcomes]
    separating = [task for task in tasks if task.separates]
    runs = [run for task in separating for run in task.runs]
    shares = {verdict: _share([run.verdict == verdict for run in runs]) for verdict in (BETTER, CANNOT_TELL, WORSE)}
    limited = sum(any(r.stopped for r in search.rounds) for outcome in outcomes for search in outcome.searches)
    ended = [f"{counted(limited, 'search', 'searches')} ended at a limit"] if limited else []
    asked = {name: value for name, value in asdict(config).items() if name != "base_url"}
    return Score(
        model=config.model,
        track=config.track,
        budget=config.budget,
        changes=[*config.changes, *ended],
        score=total(tasks),
        human=human_score([task.values for task in tasks]),
        better=shares[BETTER],
        cannot_tell=shares[CANNOT_TELL],
        worse=shares[WORSE],
        gain=mean_estimate([[run.gain for run in task.runs if math.isfinite(run.gain)] for task in separating]),
        tasks=tasks,
        config=asked,
    )


def total(tasks: Sequence[TaskScore]) -> Estimate:
    """Return the score of tasks, from their numbers alone."""
    return score([task.values for task in tasks])


def _task(config: ScoreConfig, outcome: TaskOutcome) -> TaskScore:
    run = outcome.run
    by_name: dict[str, dict[int, float]] = {}
    for row in run.rows:
        if row.measured:
            by_name.setdefault(row.candidate, {})[row.seed] = row.fitness
    # seeds that both baselines have; another reference that lost one of them is none
    seeds = sorted(by_name.get(UNSHAPED, {}).keys() & by_name.get(HUMAN, {}).keys())
    if not seeds:
        raise UserError(f"{run.folder.path}: human and unshaped have no fitness with the same seed: see run.log")
    names = [HUMAN, UNSHAPED, *outcome.references]
    references = {name: [by_name[name][s] for s in seeds] for name in names if set(seeds) <= set(by_name.get(name, {}))}
    values = TaskValues(*_arrays(references), np.zeros((0, len(seeds))))
    untrained = _mean(list(by_name.get(UNTRAINED, {}).values()))

    def scored(fitness: Sequence[float | None]) -> float:
        return values.score_of(_filled(fitness, references[UNSHAPED]))

    def of_search(search: SearchOutcome | None, winner: str, first: str) -> RunScore:
        fitness = [by_name.get(winner, {}).get(seed) for seed in seeds]
        mean, before = _mean([x for x in fitness if x is not None]), outcome.before.get(winner, untrained)
        of_winner, of_first = scored(fitness), scored([by_name.get(first, {}).get(seed) for seed in seeds])
        others = {} if search is None else _facts(search)
        can_pair = winner in run.pairs.names
        return RunScore(
            winner=search.winner.name if search is not None and search.winner is not None else winner,
            source=_hash(run, winner),
            fitness=fitness,
            score=of_winner,
            verdict=CANNOT_TELL if winner == HUMAN or not can_pair else run.pairs.named(winner, HUMAN).verdict,
            before_training=before,
            learned=min(max(1 - (before - untrained) / (mean - untrained), 0.0), 1.0) if mean > untrained else NAN,
            first_round=of_first,
            gain=of_winner - of_first if search is not None else NAN,
            steps_to_90=_steps_to(run, winner, untrained),
            **others,
        )

    if not config.searches:
        runs = [of_search(None, config.candidate, config.candidate)]
    else:
        runs = [of_search(search, *names) for search, names in zip(outcome.searches, outcome.names)]
    return TaskScore(
        name=outcome.task.name,
        description=outcome.task.description,
        fitness_meaning=run.fitness_meaning,
        seeds=seeds,
        references=references,
        best=values.best,
        separates=values.separates,
        human=scored(references[HUMAN]),
        runs=runs,
    )


def _arrays(references: Mapping[str, Sequence[float]]) -> tuple[Values, dict[str, Values]]:
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in references.items()}
    return arrays.pop(UNSHAPED), arrays


def _filled(fitness: Sequence[float | None], unshaped: Sequence[float]) -> Values:
    """Return a winner's fitness by seed, that of ``unshaped`` where it failed."""
    return np.asarray([base if x is None else x for x, base in zip(fitness, unshaped)], dtype=np.float64)


def _facts(search: SearchOutcome) -> dict[str, Any]:
    """Return what a search took, and what became of its candidates."""
    archive = search.folder.read_archive()
    same = {*search.copied, *(attempt.name for attempt in archive.attempts if attempt.same_as)}  # which were trained
    ready = [proposal for round in search.rounds for proposal in round.ready]
    trained = sum(proposal.name not in same for proposal in ready)
    repaired = sum(name not in same for round in search.rounds for name in round.repaired)
    failed = [fault for round in search.rounds for _, _, fault in round.failed]
    written = len(ready) + len(failed)
    usage = [round.usage for round in search.rounds]
    costs = [each.cost for each in usage]
    return {
        "transcript": file_digest(search.folder.transcript) if search.folder.transcript.is_file() else "",
        "candidates": written,
        "executable": trained / written if written else NAN,
        "executable_at_first": (trained - repaired) / written if written else NAN,
        "duplicates": len(same) + sum(fault.kind == DUPLICATE for fault in failed),
        "hacked": sum(bool(attempt.hacked) for attempt in archive.attempts),
        "tokens": sum(each.input_tokens + each.output_tokens for each in usage),
        "cost": None if None in costs else math.fsum(x for x in costs if x is not None),
        "device_minutes": search.seconds / 60,
    }


def _steps_to(run: OpenedRun, name: str, untrained: float) -> float:
    """Return the env-steps at which the mean of all seeds first has REACHED of its gain over the untrained policy."""
    file = run.folder.points
    by_steps: dict[int, dict[int, float]] = {}
    with user_input(file):
        points = read_points(file) if file.is_file() else []
    for point in points:
        if point.candidate == name:
            by_steps.setdefault(point.env_steps, {})[point.seed] = point.fitness
    # a seed that was lost would change the mean
    most = max(map(len, by_steps.values()), default=0)
    means = {steps: _mean([*x.values()]) for steps, x in sorted(by_steps.items()) if len(x) == most}
    wanted = untrained + REACHED * ([*means.values()][-1] - untrained) if means else NAN
    return float(next((x for x, mean in means.items() if mean >= wanted), NAN)) if wanted > untrained else NAN


def _hash(run: OpenedRun, name: str) -> str:
    return file_digest(run.folder.source(name)) if name in run.sources else ""


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else NAN


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else NAN
