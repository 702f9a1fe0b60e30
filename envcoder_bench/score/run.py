"""The runs of a score: searches of each task, then all winners and references together on held-out seeds.

A score's folder::

    config.yaml          what was asked, and the held-out seeds
    unseen/              the unseen tasks, if any
    published/           the rewards of a method that has published them, if it is the model
    searches/TASK/K/     the K-th search of a task, a folder of auto-shape without final evaluation
    agents/TASK/K/       the session of an agent, of which that search is made: see agent.py
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
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.inputs import described
from envcoder_bench.run.prepare.groups import prepare
from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.run.train.rows import evaluate_untrained
from envcoder_bench.score import published
from envcoder_bench.score.agent import AgentSearch, agent_command
from envcoder_bench.score.protocol import (
    AGENT,
    BUDGETS,
    EPISODES,
    HELD_OUT_SEEDS,
    HUMAN,
    ONE_SHOT,
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
from envcoder_bench.search.providers.choice import REPLAY, WITHOUT_MODEL, kind_of, make_provider
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
        agent: the command of the agent, with its budget.
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
    agent: str = ""

    @property
    def searches(self) -> int:
        """Searches of each task: none for a reference, nor for a published reward."""
        return 0 if self.model in REFERENCE_MODELS or published.method_of(self.model) else self.runs

    @property
    def candidate(self) -> str:
        """The name of the candidate of a model that needs no search, in the run on held-out seeds."""
        return (published.method_of(self.model) or self.model).replace("-", "_")

    @property
    def changes(self) -> list[str]:
        """What differs from the protocol; a score with changes is not comparable."""
        runs = [] if self.runs == RUNS else [f"{self.runs} searches of each task, not {RUNS}"]
        tasks = ["tasks with a published reward alone"] if published.method_of(self.model) else []
        return [*runs, *tasks, *self.overrides]


@dataclass(frozen=True)
class SearchOutcome:
    """What a search found, and what it took.

    Attributes:
        winner, first: the winner, and the best of the first round; None if nothing could be trained.
        runs: the runs that it took.
    """

    winner: Attempt | None
    first: Attempt | None
    rounds: Sequence[Round]
    folder: SearchFolder
    runs: Sequence[RunFolder]

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

    def agent(self, task: ScoredTask, number: int) -> Path:
        return self.path / "agents" / task.name / str(number)

    def final(self, task: ScoredTask) -> Path:
        return self.path / "final" / task.name

    def published(self, task: str) -> Path:
        return self.path / "published" / f"{task}.txt"

    @classmethod
    def create(cls, path: Path, config: ScoreConfig, files: Mapping[str, bytes]) -> "ScoreFolder":
        """Create a folder with published rewards by task. Raises UserError if it is taken, or cannot be written."""
        with user_input():
            refuse_taken(path, kind="score")
        folder = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                folder.published(name).parent.mkdir(exist_ok=True)
                write_atomic(folder.published(name), content)
            write_atomic(folder.config, to_yaml(asdict(config)))  # the last: with it, the score can be resumed
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
    tasks = named_tasks([name for name in config.tasks if name != UNSEEN])
    files: dict[str, bytes] = {}
    if published.method_of(config.model):
        if UNSEEN not in config.tasks and not any(published.has_reward(config.model, task) for task in tasks):
            raise UserError(f"--llm {config.model} has no reward for these tasks: give --tasks Ant or --tasks unseen")
        _refuse_search(config, runs)
        files = published.fetch(config.model)
        config = replace(config, model=config.model.partition("@")[0])
    elif config.budget == AGENT:
        config = _with_agent(config)
    elif config.agent:
        raise UserError("--agent needs --budget agent")
    elif config.model not in REFERENCE_MODELS and kind_of(config.model) not in WITHOUT_MODEL:
        make_provider(config.model, config.base_url)  # raises for a missing key, before anything is written
    for task in tasks:
        described(task.address, [*_FINAL, *_words(config, task)])
    return ScoreFolder.create(path, config, files), config


def _refuse_search(config: ScoreConfig, runs: int | None) -> None:
    """Raise UserError for flags of searches, which published rewards do not have."""
    budget = "" if config.budget == ONE_SHOT else config.budget
    flags = {"budget": budget, "agent": config.agent, "runs": runs, "max_cost": config.max_cost}
    used = [f"--{flag}" for flag, value in {**flags, "base_url": config.base_url}.items() if value not in (None, "")]
    if used:
        raise UserError(f"--llm {config.model} makes no search and sends no request: leave out {', '.join(used)}")


def _with_agent(config: ScoreConfig) -> ScoreConfig:
    """Return the config with the whole path of its agent. Raises UserError."""
    if config.model in (*REFERENCE_MODELS, *WITHOUT_MODEL) or config.model.startswith(f"{REPLAY}:"):
        raise UserError(f"--budget agent: {config.model} is not an agent; give --llm the name of the agent's model")
    for flag, value in (("max_cost", config.max_cost), ("base_url", config.base_url)):
        if value is not None:
            raise UserError(f"--{flag} is not for --budget agent, whose requests the agent sends itself")
    return replace(config, agent=agent_command(config.agent))


def tasks_of(folder: ScoreFolder, config: ScoreConfig) -> list[ScoredTask]:
    """Return the tasks of a score; the unseen ones are written, the same at every call."""
    tasks = named_tasks([name for name in config.tasks if name != UNSEEN])
    tasks += draw_tasks(folder.unseen, config.drawn) if UNSEEN in config.tasks else []
    is_published = bool(published.method_of(config.model))
    return [task for task in tasks if not is_published or published.has_reward(config.model, task)]


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
    rounds: list[Round] = []
    while (round := search.read_round(len(rounds) + 1)) is not None:
        rounds.append(round)
    winners = archive.leaders(len(archive.attempts))
    firsts = [attempt for attempt in winners if attempt.round == 1]
    runs = [search.run(round.number) for round in rounds]
    if config.budget == AGENT:
        runs = _agent_search(folder, config, task, number).runs()
    runs.append(RunFolder(search.validation))
    return SearchOutcome(next(iter(winners), None), next(iter(firsts), None), rounds, search, runs)


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
    if config.budget == AGENT:
        return _agent_search(folder, config, task, number).run(view)
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


def _agent_search(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, number: int) -> AgentSearch:
    paths = folder.agent(task, number), folder.search(task, number)
    seed, words = SEEDS_APART * (number + 1), _words(config, task)
    return AgentSearch(*paths, config.model, config.agent, task, seed, words, config.overrides)


def _run_final(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, view: View) -> bool:
    """Train winners and references with the held-out seeds; return whether the run is finished."""
    path = folder.final(task)
    if (path / "config.yaml").is_file():
        return resume(path, reporter=view.reporter, stop=view.stop).complete
    shutil.rmtree(path, ignore_errors=True)
    searches = [read_search(folder, config, task, number) for number in range(config.searches)]
    result = evaluate(
        task.address,
        {**_references(task, searches), **_winners(searches)[0], **_published(folder, config, task)},
        overrides=[f"seed={config.held_out}", *_FINAL, *_words(config, task)],
        output_dir=path,
        reporter=view.reporter,
        stop=view.stop,
    )
    return result.complete


def _published(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask) -> dict[str, str]:
    """Return the published reward of the task by the name of its method; empty for other models."""
    if not published.method_of(config.model):
        return {}
    return {config.candidate: published.reward_of(config.model, task, folder.published(task.fitness_of))}


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
