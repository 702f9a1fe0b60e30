"""A static site of scores: ``leaderboard add SCORE_FOLDER --site DIR`` checks a score and writes the page anew.

A score is checked against its folder: that its numbers follow from the runs on held-out seeds, that each winner's text
is the one that was trained, and that a model wrote it, as its transcript says.
"""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import file_digest, read_json, write_atomic
from envcoder_bench.run.folder.policies import OpenedRun, open_run
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.inputs import described
from envcoder_bench.score.document import Score, score_document
from envcoder_bench.score.folder import ScoreConfig, ScoreFolder
from envcoder_bench.score.page import leaderboard_page
from envcoder_bench.score.protocol import AGENT, CONTROLLER_TRACK, TRACKS, VERSION, ScoredTask
from envcoder_bench.score.run import SearchOutcome, final_words, read_task, search_words, tasks_of
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.search.launch import UNTRUSTED
from envcoder_bench.search.llm import written_source
from envcoder_bench.search.providers.choice import WITHOUT_MODEL
from envcoder_bench.search.providers.transcript import read_records
from envcoder_bench.search.settings import SearchSettings, compose_settings

INDEX, SCORES = "index.html", "scores"
_PLACES = {"device", "devices", "ray", "isolate", "max_memory", "task_source", "fitness"}  # keys of cfg/config.yaml
_UNCHECKED = {"before_training", "learned"}  # keys of score.json on the track of controllers: they need a simulation
_SCORE = TypeAdapter(Score)


def read_score(path: Path) -> Score:
    """Read a score.json. Raises UserError."""
    try:
        return _SCORE.validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path} is not a score: {where}: {first['msg']}") from error


def add(path: Path, site: Path) -> Path:
    """Check the score in a folder, copy its score.json to a site, and write the site's page; return the page.

    Raises:
        UserError: the score does not follow from its folder, with all differences.
    """
    folder, config = ScoreFolder.open(path.resolve())
    score = read_score(folder.score)
    wrong = differences(folder, config, score)
    if wrong:
        raise UserError(f"{folder.score} does not agree with its folder: {'; '.join(wrong)}")
    name = re.sub(r"[^\w.-]+", "_", f"{score.model}_{score.track}_{score.budget}_{file_digest(folder.score)[:8]}")
    (site / SCORES).mkdir(parents=True, exist_ok=True)
    write_atomic(site / SCORES / f"{name}.json", folder.score.read_bytes())
    scores = [read_score(file) for file in sorted((site / SCORES).glob("*.json"))]
    write_atomic(site / INDEX, leaderboard_page(scores))
    return site / INDEX


def differences(folder: ScoreFolder, config: ScoreConfig, score: Score) -> list[str]:
    """Return what of a score does not follow from its folder."""
    if score.protocol != VERSION:
        return [f"protocol {score.protocol}, and this version has {VERSION}"]
    notes = folder.read_notes()
    folder.refuse_changed(notes)
    tasks = tasks_of(folder, config, notes)
    parts = [part for task in tasks for part in (folder.final(task), *_searches(folder, config, task))]
    other = {str(part.relative_to(folder.path)) for part in parts} ^ notes.ended.keys()
    if other:
        return [f"{folder.notes} has other searches and runs than the score: {', '.join(sorted(other))}"]
    outcomes = [read_task(folder, config, task) for task in tasks]
    again = json.loads(score_document(config, outcomes).as_json())
    left_out = {"package", *(_UNCHECKED if config.track == CONTROLLER_TRACK else ())}
    wrong = _unequal(_without(read_json(folder.score), left_out), _without(again, left_out))
    for task, outcome in zip(tasks, outcomes):
        wrong += _unproved(outcome.run) + _other_config(outcome.run, task, final_words(config, task, notes))
        for number, ((name, _), search) in enumerate(zip(outcome.names, outcome.searches)):
            wrong += [] if config.budget == AGENT else _other_search(search, search_words(config, task, number))
            wrong += _unmeasured(search, config.budget == AGENT)
            wrong += _unwritten(outcome.run, name, search, config)
    return wrong


def _searches(folder: ScoreFolder, config: ScoreConfig, task: ScoredTask) -> list[Path]:
    return [folder.search(task, number) for number in range(config.searches)]


def _unproved(run: OpenedRun) -> list[str]:
    """Return the tables that a run lacks, or of which it has no digest. Raises UserError for a changed table."""
    tables = [run.folder.results, run.folder.points, run.folder.episodes]
    missing = [f"{table} is missing" for table in tables if not table.is_file()]
    if missing:
        return missing
    known = {} if run.folder.provenance is None else run.folder.provenance.files
    for table in tables:
        run.folder.refuse_changed(table)
    return [f"{run.folder.run} has no digest of {table.name}" for table in tables if table.name not in known]


def _other_config(run: OpenedRun, task: ScoredTask, words: Sequence[str]) -> list[str]:
    """Return the keys in which a run is not one of the protocol with the changes that the score lists."""
    asked, used = described(task.address, words).config.plain(), run.spec.config.plain()
    keys = [key for key in {**asked, **used} if key not in _PLACES and asked.get(key) not in ("auto", used.get(key))]
    wrong = [f"{run.folder.config}: {key} is {used.get(key)!r}, and the score has {asked.get(key)!r}" for key in keys]
    fitness = None if task.goal is None else task.goal.read_text(encoding="utf-8")
    is_same = fitness == (None if run.spec.fitness is None else run.spec.fitness.source)
    return wrong if is_same else [*wrong, f"{run.folder.fitness} is not the fitness of {task.name}"]


def _other_search(search: SearchOutcome, words: Sequence[str]) -> list[str]:
    """Return the settings in which a search is not one of the protocol with the changes that the score lists."""
    settings, overrides = compose_settings(words)
    _, config = SearchFolder.open(search.folder.path)
    asked, used = settings.plain(), SearchSettings.checked(config.search).plain()
    keys = [key for key, value in asked.items() if key != "max_cost" and used.get(key) != value]
    wrong = [f"{search.folder.config}: {key} is {used.get(key)!r}" for key in keys]
    asked, used = ([x for x in each if not x.startswith("fitness=")] for each in (overrides, config.overrides))
    return wrong if used == [*asked, UNTRUSTED] else [*wrong, f"{search.folder.config}: overrides are {used}"]


def _unmeasured(search: SearchOutcome, by_agent: bool) -> list[str]:
    """Return the seeds whose fitness of a winner is not that of a run; an agent's rankings have other names."""
    if search.winner is None:
        return []
    runs = [*(search.folder.run(round.number) for round in search.rounds), RunFolder(search.folder.validation)]
    opened = [open_run(run.path) for run in runs if run.complete]
    wrong = [each for run in opened for each in _unproved(run)]
    rows = {row.seed: row.fitness for run in opened for row in run.rows if row.candidate == search.winner.name}
    for seed, fitness in search.winner.by_seed.items():
        if not math.isclose(rows.get(seed, fitness if by_agent else math.nan), fitness, rel_tol=1e-6, abs_tol=1e-9):
            wrong.append(
                f"{search.folder.archive}: {search.winner.name} has {fitness:g} with seed {seed}, and no run does"
            )
    return wrong


def _without(value: Any, keys: set[str]) -> Any:
    """Return JSON without some keys, anywhere in it."""
    if isinstance(value, dict):
        return {key: _without(each, keys) for key, each in value.items() if key not in keys}
    return [_without(each, keys) for each in value] if isinstance(value, list) else value


def _unequal(found: Any, expected: Any, where: str = "") -> list[str]:
    """Return where two documents differ, by dotted keys."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return [
            each
            for k in {**found, **expected}
            for each in _unequal(found.get(k), expected.get(k), f"{where}.{k}".lstrip("."))
        ]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [each for k, pair in enumerate(zip(found, expected)) for each in _unequal(*pair, f"{where}.{k}")]
    if isinstance(found, float) and isinstance(expected, float) and math.isclose(found, expected, rel_tol=1e-6):
        return []
    if found == expected:
        return []
    return [f"{where} is {found!r}, and its runs give {expected!r}"]


def _unwritten(run: OpenedRun, name: str, search: SearchOutcome, config: ScoreConfig) -> list[str]:
    """Return whether a search's winner is not what trained, or what its model wrote."""
    if search.winner is None:
        return []
    wrong = (
        [] if run.source(name).source == search.winner.source else [f"{name} is not the winner of {search.folder.path}"]
    )
    if config.model not in WITHOUT_MODEL:
        records, _ = read_records(search.folder.transcript)
        replies = [record["reply"]["text"] for record in records if record["type"] == "reply"]
        texts = [written_source(text, TRACKS[config.track])[0] for text in replies]
        # an agent's calls
        texts += [text for record in records if record["type"] == "call" for text in record.get("sources", {}).values()]
        if search.winner.source not in texts:
            wrong.append(f"{search.folder.transcript} has no reply with {search.winner.name}")
    return wrong


def score_json(score: Score) -> str:
    """Return score.json, with an indent, because people read it."""
    return json.dumps(json.loads(score.as_json()), indent=1, ensure_ascii=False) + "\n"
