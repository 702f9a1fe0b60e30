"""The runs of a score: searches of each task, then all winners and references together on held-out seeds.

A score's folder::

    config.yaml          what was asked, and the held-out seeds
    unseen/              the unseen tasks, if any
    searches/TASK/K/     the K-th search of a task, a folder of auto-shape without final evaluation
    final/TASK/          the run in which its winners and references train, with the held-out seeds
    score.json, report.html
"""

import hashlib
import math
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import TypeAdapter, ValidationError

from envcoder_bench.core.errors import UserError, recorded_input, user_input
from envcoder_bench.core.files import locked, refuse_taken, write_atomic
from envcoder_bench.core.folders import SCORE, other_kind
from envcoder_bench.core.shell import quoted, resume_command
from envcoder_bench.core.yaml_files import parse_plain, to_yaml
from envcoder_bench.results.logs import RunLogs
from envcoder_bench.run.config import find_task
from envcoder_bench.run.evaluate import evaluate, resume
from envcoder_bench.run.folder.policies import OpenedRun, open_run
from envcoder_bench.run.inputs import described
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.train.rows import evaluate_untrained
from envcoder_bench.score.protocol import (
    BUDGETS,
    EPISODES,
    HELD_OUT_SEEDS,
    HUMAN,
    REFERENCE_MODELS,
    RUNS,
    TRACKS,
    UNSEEN,
    VALIDATION_SEEDS,
    ScoredTask,
    named_tasks,
)
from envcoder_bench.score.unseen import draw_tasks
from envcoder_bench.search import launch
from envcoder_bench.search.archive import Attempt
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.providers.choice import WITHOUT_MODEL, kind_of, make_provider
from envcoder_bench.search.providers.sdk import check_base_url
from envcoder_bench.search.screen import View
from envcoder_bench.search.settings import compose_settings
from envcoder_bench.tasks.base import BASELINES

FIRST_HELD_OUT = 2_000_000_000  # held-out seeds are drawn from here on, where no search has any
SEEDS_APART = 20_000  # of two searches of a task
LEAST_COST = 0.01  # of a search, US dollars: its first request tells what the limit lacks
# of the run on held-out seeds
_FINAL = (
    *(f"seeds={HELD_OUT_SEEDS}", f"evaluation.final_episodes={EPISODES}"),
    *("untrusted=true", "save_state=false"),
)
AGAIN = "human_again"  # the human baseline, where there is neither a reference nor a winner
WINNER, FIRST = "run_{}", "first_{}"  # names of a search's winner and of the best of its first round


@dataclass(frozen=True)
class ScoreConfig:
    """What was asked: config.yaml.

    Attributes:
        model: as of ``auto-shape --llm``, or one of REFERENCE_MODELS.
        tasks: names of tasks and sets.
        runs: searches of each task.
        held_out: the first of the held-out seeds.
        drawn: the seed of the unseen tasks.
        max_cost: US dollars for all requests together.
        overrides: ``key=value`` for all searches and runs; with any the protocol is changed.
    """

    model: str
    track: str
    budget: str
    tasks: tuple[str, ...]
    runs: int = RUNS
    base_url: str | None = None
    max_cost: float | None = None
    held_out: int = 0
    drawn: int = 0
    overrides: tuple[str, ...] = ()

    @property
    def searches(self) -> int:
        """Searches of each task: none for a reference."""
        return 0 if self.model in REFERENCE_MODELS else self.runs

    @property
    def changes(self) -> list[str]:
        """What differs from the protocol; a score with changes is not comparable."""
        runs = [] if self.runs == RUNS else [f"{self.runs} searches of each task, not {RUNS}"]
        return [*runs, *self.overrides]


@dataclass(frozen=True)
class SearchOutcome:
    """What a search found, and what it took.

    Attributes:
        winner, first: the winner, and the best of the first round; None if nothing could be trained.
    """

    winner: Attempt | None
    first: Attempt | None
    rounds: Sequence[Round]
    folder: SearchFolder

    @property
    def cost(self) -> float:
        """US dollars, as far as they are known."""
        return sum(round.usage.cost or 0.0 for round in self.rounds)


@dataclass(frozen=True)
class TaskOutcome:
    """A task's searches and its run on the held-out seeds.

    Attributes:
        names: of the winner and of the first round's best of each search in ``run``; empty without one.
        before: fitness before training, by candidate.
    """

    task: ScoredTask
    searches: Sequence[SearchOutcome]
    names: Sequence[tuple[str, str]]
    references: Sequence[str]
    run: OpenedRun
    before: Mapping[str, float]


class ScoreFolder:
    """The paths of a score's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.unseen = path / "unseen"
        self.score = path / "score.json"
        self.command = resume_command(path, "envcoder-bench score-model")

    def search(self, task: ScoredTask, number: int) -> Path:
        return self.path / "searches" / task.name / str(number)

    def final(self, task: ScoredTask) -> Path:
        return self.path / "final" / task.name

    @classmethod
    def create(cls, path: Path, config: ScoreConfig) -> "ScoreFolder":
        """Create a folder. Raises UserError if the path is taken, or cannot be written."""
        with user_input():
            refuse_taken(path, kind="score")
        folder = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_atomic(folder.config, to_yaml(asdict(config)))
        except OSError as error:
            raise UserError(f"--output_dir {path} cannot be written: {error.strerror}") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple["ScoreFolder", ScoreConfig]:
        """Open a folder to resume it. Raises UserError."""
        folder = cls(path)
        other = other_kind(path, SCORE)
        if other is not None:
            raise UserError(other)
        try:
            config = parse_plain(folder.config.read_text(encoding="utf-8"))
            return folder, TypeAdapter(ScoreConfig).validate_python(config)
        except OSError as error:
            raise UserError(f"--resume {path}: it is not the folder of a score (no config.yaml)") from error
        except (ValidationError, ValueError) as error:
            raise UserError(f"{folder.config} is damaged: {' '.join(str(error).split())}") from error


def begin(path: Path, *, runs: int | None = None, drawn: int = 0, **asked: Any) -> tuple[ScoreFolder, ScoreConfig]:
    """Create the folder of a score, with held-out seeds and unseen tasks that nobody knows before.

    Args:
        runs, drawn, asked: fields of ScoreConfig.

    Raises:
        UserError: an unknown task or model, a search that cannot begin, or a path that is taken.
    """
    config = ScoreConfig(
        **asked,
        runs=runs or RUNS,
        held_out=FIRST_HELD_OUT + secrets.randbelow(10**9),
        drawn=drawn or secrets.randbelow(10**6) + 1,
    )
    check_base_url(config.base_url or "")
    if config.model not in REFERENCE_MODELS and kind_of(config.model) not in WITHOUT_MODEL:
        make_provider(config.model, config.base_url)  # raises for a missing key, before anything is written
    tasks = named_tasks([name for name in config.tasks if name != UNSEEN])
    for task in tasks:
        described(task.address, [*_FINAL, *_words(config, task)])
    return ScoreFolder.create(path, config), config


def tasks_of(folder: ScoreFolder, config: ScoreConfig) -> list[ScoredTask]:
    """Return the tasks of a score; the unseen ones are written, the same at every call."""
    named = named_tasks([name for name in config.tasks if name != UNSEEN])
    return [*named, *(draw_tasks(folder.unseen, config.drawn) if UNSEEN in config.tasks else ())]


def raise_cost(folder: ScoreFolder, config: ScoreConfig, max_cost: float) -> ScoreConfig:
    """Write and return the config with a higher limit on the cost, also for searches that the limit has ended."""
    if config.max_cost is None or max_cost <= config.max_cost:
        raise UserError(f"--max_cost {max_cost}: the score has {config.max_cost}, which can only be raised")
    config = replace(config, max_cost=max_cost)
    write_atomic(folder.config, to_yaml(asdict(config)))
    return config


def run_score(
    folder: ScoreFolder, config: ScoreConfig, view: View, say: Callable[[str], None]
) -> list[TaskOutcome] | None:
    """Run what is left of a score; return the outcomes, None if it was stopped.

    Raises:
        UserError: bad input, or a search cannot continue for now; what was done is kept.
    """
    with locked(folder.path, "score"), recorded_input(folder.config):
        outcomes: list[TaskOutcome] = []
        spent = 0.0
        for task in tasks_of(folder, config):
            for number in range(config.searches):
                if not _run_search(folder, config, task, number, spent, view):
                    return None
                search = read_search(folder, config, task, number)
                spent += search.cost
                best = "no candidate could be trained" if search.winner is None else search.winner.name
                say(f"{task.name}, search {number + 1} of {config.runs}: {best}")
            if not _run_final(folder, config, task, view):
                return None
            say(f"{task.name}: winners and references are trained with held-out seeds")
            outcome = read_task(folder, config, task)
            outcomes.append(replace(outcome, before=_before(outcome.run)))
        return outcomes


def read_search(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, number: int) -> SearchOutcome:
    """Read what a finished search found."""
    search = SearchFolder(folder.search(task, number))
    archive = search.read_archive()
    rounds = [search.read_round(k) for k in range(1, BUDGETS[config.budget].rounds + 1)]
    firsts = [attempt for attempt in archive.ranked() if attempt.round == 1 and not attempt.stopped_at]
    return SearchOutcome(archive.best(), next(iter(firsts), None), [r for r in rounds if r is not None], search)


def read_task(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask) -> TaskOutcome:
    """Read what a finished task has; its fitness before training is not in the folder, but in score.json."""
    searches = [read_search(folder, config, task, number) for number in range(config.searches)]
    _, names = _winners(searches)
    return TaskOutcome(task, searches, names, list(_references(task, searches)), open_run(folder.final(task)), {})


def _words(config: ScoreConfig, task: ScoredTask) -> list[str]:
    """Return the overrides of all runs of a task; those of the search alone are left out."""
    goal = [f"fitness={quoted(str(task.goal))}"] if task.goal is not None else []
    of_runs = compose_settings(config.overrides)[1]
    return [f"shaper_types=[{','.join(TRACKS[config.track])}]", *goal, *task.overrides, *of_runs]


def _run_search(
    folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, number: int, spent: float, view: View
) -> bool:
    """Start or resume a search; return whether it is finished."""
    search, budget = SearchFolder(folder.search(task, number)), BUDGETS[config.budget]
    left = None if config.max_cost is None else max(config.max_cost - spent, LEAST_COST)
    if search.config.is_file():
        before = SearchFolder.open(search.path)[1].search.max_cost
        ended = any(round.stopped for round in read_search(folder, config, task, number).rounds)
        raised = {"max_cost": left} if ended and left is not None and before is not None and left > before else {}
        return launch.resume(search.path, view, raised).stopped is None
    shutil.rmtree(search.path, ignore_errors=True)  # its creation was interrupted
    result = launch.start(
        task.address,
        config.model,
        task.description,
        [
            *(f"num_iters={budget.rounds}", f"shapers_per_iter={budget.candidates}", "seeds=1"),
            *(f"validation_seeds={VALIDATION_SEEDS}", "final_seeds=0", f"seed={SEEDS_APART * (number + 1)}"),
            *([] if left is None else [f"max_cost={left:.4f}"]),
            *_words(config, task),
            *config.overrides,
        ],
        config.base_url,
        output_dir=search.path,
        view=view,
    )
    return result.stopped is None


def _run_final(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, view: View) -> bool:
    """Train winners and references with the held-out seeds; return whether the run is finished."""
    path = folder.final(task)
    if (path / "config.yaml").is_file():
        return resume(path, reporter=view.reporter, stop=view.stop).complete
    shutil.rmtree(path, ignore_errors=True)
    searches = [read_search(folder, config, task, number) for number in range(config.searches)]
    result = evaluate(
        task.address,
        {**_references(task, searches), **_winners(searches)[0]},
        overrides=[f"seed={config.held_out}", *_FINAL, *_words(config, task)],
        output_dir=path,
        reporter=view.reporter,
        stop=view.stop,
    )
    return result.complete


def _winners(searches: Sequence[SearchOutcome]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the texts that train by name, equal ones once, and the names of each search's winner and first best."""
    names: dict[str, str] = {}

    def named(name: str, attempt: Attempt | None) -> str:
        return "" if attempt is None else names.setdefault(attempt.source, name)

    pairs = [
        (named(WINNER.format(number), search.winner), named(FIRST.format(number), search.first))
        for number, search in enumerate(searches)
    ]
    return {name: source for source, name in names.items()}, pairs


def _references(task: ScoredTask, searches: Sequence[SearchOutcome]) -> dict[str, str]:
    """Return the texts of the references that train, by name."""
    references = {path.stem: path.read_text(encoding="utf-8") for path in task.references}
    if references or any(search.winner for search in searches):
        return references
    baselines = {source.name: source.source for source in baseline_sources(find_task(task.address))}
    return {AGAIN: baselines[HUMAN]}  # a run needs a candidate


def _before(run: OpenedRun) -> dict[str, float]:
    """Return what the initial policy scores with the observation and action functions of each candidate."""
    spec = replace(run.spec.changed(seeds=1), sources=tuple(run.sources.values()))
    groups, _ = prepare(spec)
    kept = [group for group in groups if group.name not in BASELINES]
    if not kept:
        return {}
    with TemporaryDirectory() as logs:
        rows, _ = evaluate_untrained(spec, kept, RunLogs.begin(Path(logs)))
    return {group.name: row.fitness for group, row in zip(kept, rows) if math.isfinite(row.fitness)}


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file; empty if there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
