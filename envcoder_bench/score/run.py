"""The runs of a score: searches of all tasks, then the winners and references of each together on held-out seeds.

The held-out seeds are drawn when the last search of the last task has ended, so that no model and no agent can find
them. From then on only the texts that the searches have chosen count.
"""

import math
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from envcoder_bench.core.errors import MachineError, Stopped, UserError, recorded_input, user_input
from envcoder_bench.core.files import locked, read_json, write_atomic
from envcoder_bench.core.shell import quoted
from envcoder_bench.core.yaml_files import to_yaml
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
from envcoder_bench.score.folder import Notes, ScoreConfig, ScoreFolder
from envcoder_bench.score.protocol import (
    AGENT,
    BUDGETS,
    CONTROLLER_TRACK,
    EPISODES,
    HELD_OUT_SEEDS,
    HUMAN,
    ONE_SHOT,
    REFERENCE_MODELS,
    RUNS,
    TRACKS,
    UNSEEN,
    VALIDATION_SEEDS,
    VERSION,
    ScoredTask,
    named_tasks,
)
from envcoder_bench.score.unseen import UNSEEN_TASKS, draw_task
from envcoder_bench.search import launch
from envcoder_bench.search.archive import Attempt
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.search.providers.choice import REPLAY, WITHOUT_MODEL, kind_of, make_provider
from envcoder_bench.search.providers.sdk import check_base_url
from envcoder_bench.search.screen import View
from envcoder_bench.search.settings import compose_settings
from envcoder_bench.shaping.copies import Known
from envcoder_bench.tasks.base import BASELINES

FIRST_HELD_OUT, HELD_OUT_RANGE = 2_000_000_000, 10**9  # held-out seeds are drawn from here, where no search has any
SEEDS_APART = 20_000  # of two searches of a task
LEAST_COST = 0.01  # of a search, US dollars: its first request tells what the limit lacks
_LOST = "; nothing is lost, resume with"  # in an error of a search, with the command of the search
LIMIT, DUPLICATE = "--max_cost ", "duplicate"  # a flag in messages, and a kind of faults
# of the run on held-out seeds
_FINAL = (
    *(f"seeds={HELD_OUT_SEEDS}", f"evaluation.final_episodes={EPISODES}"),
    *("untrusted=true", "save_state=false"),
)
AGAIN = "human_again"  # the human baseline, where there is neither a reference nor a winner
WINNER, FIRST = "run_{}", "first_{}"  # names of a search's winner and of the best of its first round


@dataclass(frozen=True)
class SearchOutcome:
    """What a search found, and what it took.

    Attributes:
        winner, first: the winner, and the best of the first round; None if nothing could be trained.
        seconds: of its trainings.
        copied: candidates that are copies or near-copies of a reference.
    """

    winner: Attempt | None
    first: Attempt | None
    rounds: Sequence[Round]
    folder: SearchFolder
    seconds: float
    copied: Sequence[str]


@dataclass(frozen=True)
class TaskOutcome:
    """A task's searches and its run on the held-out seeds.

    Attributes:
        names: of the winner and of the first round's best of each search in ``run``; empty without one.
        before: fitness before training, by candidate; that of the row ``untrained`` if a candidate is not in it.
    """

    task: ScoredTask
    searches: Sequence[SearchOutcome]
    names: Sequence[tuple[str, str]]
    references: Sequence[str]
    run: OpenedRun
    before: Mapping[str, float]


def begin(path: Path, *, runs: int | None = None, **asked: Any) -> tuple[ScoreFolder, ScoreConfig]:
    """Create the folder of a score.

    Args:
        runs, asked: fields of ScoreConfig.

    Raises:
        UserError: an unknown task or model, a search that cannot begin, or a path that is taken.
    """
    config = ScoreConfig(**asked, runs=runs or RUNS, protocol=VERSION)
    if config.held_out and not FIRST_HELD_OUT <= config.held_out < FIRST_HELD_OUT + HELD_OUT_RANGE:
        many = f"{FIRST_HELD_OUT} to {FIRST_HELD_OUT + HELD_OUT_RANGE - 1}"
        raise UserError(f"--held_out_seed {config.held_out}: give one of {many}, where no search has any")
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
    if config.held_out:
        advice = "leave it out, and the seeds are drawn when the last search has ended"
        raise UserError("--held_out_seed is not for --budget agent, because an agent may read it", advice=advice)
    return replace(config, agent=agent_command(config.agent))


def tasks_of(folder: ScoreFolder, config: ScoreConfig, notes: Notes) -> list[ScoredTask]:
    """Return the tasks of a score; of the unseen ones, which are written anew, those that were drawn."""
    tasks = named_tasks([name for name in config.tasks if name != UNSEEN])
    tasks += [draw_task(folder.unseen, base, seed) for base, seed in notes.unseen.items()]
    is_published = bool(published.method_of(config.model))
    return [task for task in tasks if not is_published or published.has_reward(config.model, task)]


def raise_cost(folder: ScoreFolder, config: ScoreConfig, max_cost: float) -> ScoreConfig:
    """Write and return the config with a higher limit on the cost, also for searches that the limit has ended.

    If it has ended any, what was trained with held-out seeds is kept in another folder, ``final_1``, ``final_2`` ...,
    and other seeds will be drawn, because the model goes on while these are known.
    """
    if config.max_cost is None or max_cost <= config.max_cost:
        raise UserError(f"--max_cost {max_cost}: the score has {config.max_cost}, which can only be raised")
    config = replace(config, max_cost=max_cost)
    with locked(folder.path, "score"):
        notes = folder.read_notes()
        limited = [name for name in notes.ended if _is_limited(SearchFolder(folder.path / name))]
        if limited:
            kept = {name: x for name, x in notes.ended.items() if name not in limited and not name.startswith("final/")}
            begun = [name for name in notes.begun if not name.startswith("final/")]
            notes = replace(notes, held_out=0, begun=begun, ended=kept)
            folder.write_notes(notes)  # before the folder is renamed: a score that is killed between them can resume
        finals = folder.path / "final"
        if not notes.held_out and finals.is_dir():
            finals.rename(finals.with_name(f"final_{len(list(folder.path.glob('final_*'))) + 1}"))
        write_atomic(folder.config, to_yaml(asdict(config)))
    return config


@contextmanager
def at_work(folder: ScoreFolder) -> Iterator[None]:
    """Hold the lock of a score, and let errors and stops of its searches and runs say how the score is resumed."""
    try:
        with locked(folder.path, "score"):
            yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped; resume with: {folder.command}", folder.path) from None
    except UserError as error:
        reason, of_search, _ = str(error).partition(_LOST)
        if not of_search and not isinstance(error, MachineError):
            raise
        raise UserError(f"{reason}{_LOST}: {folder.command}") from error


def run_score(
    folder: ScoreFolder, config: ScoreConfig, view: View, say: Callable[[str], None]
) -> list[TaskOutcome] | None:
    """Run what is left of a score; return the outcomes, None if it was stopped. The caller holds the folder's lock.

    Raises:
        UserError: bad input, a search cannot continue for now, or a part that had ended was changed.
    """
    with recorded_input(folder.config):
        notes = folder.read_notes()
        folder.refuse_changed(notes)
        for task in _each_task(folder, config, notes):
            for number in range(config.searches):
                path = folder.search(task, number)
                if not folder.is_noted(notes, path):
                    notes.held_out = 0
                    folder.note_begun(notes, path)
                    if not _run_search(folder, config, task, number, view):
                        return None
                    folder.note(notes, path)
                best = read_search(folder, config, task, number).winner
                found = "no candidate could be trained" if best is None else best.name
                say(f"{task.name}, search {number + 1} of {config.runs}: {found}")
        # all that a model or an agent can do is done: what follows depends on files that must be as the searches left
        # them, and on seeds that were nowhere until now
        folder.refuse_changed(notes)
        if not notes.held_out:
            notes.held_out = config.held_out or FIRST_HELD_OUT + secrets.randbelow(HELD_OUT_RANGE)
            folder.write_notes(notes)
        outcomes: list[TaskOutcome] = []
        for task in tasks_of(folder, config, notes):
            if not folder.is_noted(notes, folder.final(task)):
                folder.note_begun(notes, folder.final(task))
                if not _run_final(folder, config, task, notes, view):
                    return None
                folder.note(notes, folder.final(task))
            say(f"{task.name}: winners and references are trained with held-out seeds")
            outcome = read_task(folder, config, task)
            # functions of the track reward are not those that a policy is judged with
            before = _before(outcome.run) if config.track == CONTROLLER_TRACK else {}
            outcomes.append(replace(outcome, before=before))
        folder.refuse_changed(notes)
        return outcomes


def _each_task(folder: ScoreFolder, config: ScoreConfig, notes: Notes) -> Iterator[ScoredTask]:
    """Yield the tasks in the order of their searches; an unseen one is drawn when those before it have ended."""
    yield from tasks_of(folder, config, replace(notes, unseen={}))
    for base in UNSEEN_TASKS if UNSEEN in config.tasks else ():
        if base not in notes.unseen:
            notes.unseen[base] = config.unseen or secrets.randbelow(10**6) + 1
            folder.write_notes(notes)
        yield from tasks_of(folder, replace(config, tasks=(UNSEEN,)), Notes({base: notes.unseen[base]}))


def read_search(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, number: int) -> SearchOutcome:
    """Read what a finished search found. A copy of a reference is not its winner."""
    search = SearchFolder(folder.search(task, number))
    archive, rounds = search.read_archive(), _rounds(search)
    known = _known_references(task, config.track)
    copied = [x.name for x in archive.attempts if (fault := known.fault(x.name, x.source)) and fault.kind == DUPLICATE]
    winners = [attempt for attempt in archive.leaders(len(archive.attempts)) if attempt.name not in copied]
    firsts = [attempt for attempt in winners if attempt.round == 1]
    seconds = _seconds(RunFolder(search.validation))
    if config.budget == AGENT:
        seconds += _agent_search(folder, config, task, number).seconds
    else:
        seconds += math.fsum(_seconds(search.run(round.number)) for round in rounds)
    return SearchOutcome(next(iter(winners), None), next(iter(firsts), None), rounds, search, seconds, copied)


def _seconds(folder: RunFolder) -> float:
    with user_input(folder.summary):
        return float(read_json(folder.summary).get("wall_time", 0.0)) if folder.complete else 0.0


def _rounds(search: SearchFolder) -> list[Round]:
    rounds: list[Round] = []
    while (round := search.read_round(len(rounds) + 1)) is not None:
        rounds.append(round)
    return rounds


def _is_limited(search: SearchFolder) -> bool:
    """Return whether the limit on the cost has ended a search."""
    return any(LIMIT in round.stopped for round in _rounds(search))


@lru_cache(maxsize=64)
def _known_references(task: ScoredTask, track: str) -> Known:
    """Return the references that are shipped, by which copies are known; near-copies too."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in task.shipped_references}
    baselines = {source.name: source.source for source in baseline_sources(find_task(task.address))} if texts else {}
    return Known.of(texts, baselines.get(HUMAN, ""), TRACKS[track])


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


def _run_search(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, number: int, view: View) -> bool:
    """Start or resume a search; return whether it is finished."""
    if config.budget == AGENT:
        return _agent_search(folder, config, task, number).run(view)
    search, left = SearchFolder(folder.search(task, number)), None
    if config.max_cost is not None:
        others = [path for path in folder.path.glob("searches/*/*") if path != search.path]
        costs = [round.usage.cost or 0.0 for path in others for round in _rounds(SearchFolder(path))]
        left = max(config.max_cost - math.fsum(costs), LEAST_COST)
    if search.config.is_file():
        before = SearchFolder.open(search.path)[1].search.max_cost
        is_raised = left is not None and before is not None and left > before and _is_limited(search)
        return launch.resume(search.path, view, {"max_cost": left} if is_raised else {}).stopped is None
    shutil.rmtree(search.path, ignore_errors=True)  # its creation was interrupted
    words = [*([] if left is None else [f"max_cost={left:.4f}"]), *search_words(config, task, number)]
    try:
        result = launch.start(
            task.address,
            config.model,
            task.description,
            words,
            config.base_url,
            output_dir=search.path,
            view=view,
        )
    except UserError as error:
        if left is None or LIMIT not in str(error):
            raise
        of_score = f"{LIMIT}{config.max_cost:g}: ${left:.2f} are left for search {number + 1} of {task.name}"
        raise UserError(of_score, advice=f"resume with a higher one: {folder.command} {LIMIT}USD") from error
    return result.stopped is None


def search_words(config: ScoreConfig, task: ScoredTask, number: int) -> list[str]:
    """Return the protocol of a search as ``key=value``."""
    budget = BUDGETS[config.budget]
    return [
        *(f"num_iters={budget.rounds}", f"shapers_per_iter={budget.candidates}", "seeds=1"),
        *(f"validation_seeds={VALIDATION_SEEDS}", "final_seeds=0", f"seed={SEEDS_APART * (number + 1)}"),
        *_words(config, task),
        *config.overrides,
    ]


def _agent_search(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, number: int) -> AgentSearch:
    paths = folder.agent(task, number), folder.search(task, number)
    seed, words = SEEDS_APART * (number + 1), _words(config, task)
    return AgentSearch(*paths, config.model, config.agent, task, seed, words, config.overrides)


def _run_final(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask, notes: Notes, view: View) -> bool:
    """Train winners and references with the held-out seeds; return whether the run is finished."""
    path = folder.final(task)
    if (path / "config.yaml").is_file():
        return resume(path, reporter=view.reporter, stop=view.stop).complete
    shutil.rmtree(path, ignore_errors=True)
    searches = [read_search(folder, config, task, number) for number in range(config.searches)]
    result = evaluate(
        task.address,
        {**_references(task, searches), **_winners(searches)[0], **_published(folder, config, task)},
        overrides=final_words(config, task, notes),
        output_dir=path,
        reporter=view.reporter,
        stop=view.stop,
    )
    return result.complete


def final_words(config: ScoreConfig, task: ScoredTask, notes: Notes) -> list[str]:
    """Return the overrides of the run on the held-out seeds."""
    return [f"seed={notes.held_out}", *_FINAL, *_words(config, task)]


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
