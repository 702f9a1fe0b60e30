"""A static site of scores: ``leaderboard add SCORE_FOLDER --site DIR`` checks a score and writes the page anew.

A score is checked against its folder: that its numbers follow from the runs on held-out seeds, that each winner's text
is the one that was trained, and that a model wrote it, as its transcript says.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.run.folder.policies import OpenedRun
from envcoder_bench.score.document import Score, score_document
from envcoder_bench.score.page import leaderboard_page
from envcoder_bench.score.protocol import TRACKS, VERSION
from envcoder_bench.score.run import ScoreConfig, ScoreFolder, SearchOutcome, file_hash, read_task, tasks_of
from envcoder_bench.search.llm import written_source
from envcoder_bench.search.providers.choice import WITHOUT_MODEL
from envcoder_bench.search.providers.transcript import read_records

INDEX, SCORES = "index.html", "scores"
_UNCHECKED = {"before_training", "learned", "package"}  # keys of score.json
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
    name = re.sub(r"[^\w.-]+", "_", f"{score.model}_{score.track}_{score.budget}_{file_hash(folder.score)[:8]}")
    (site / SCORES).mkdir(parents=True, exist_ok=True)
    write_atomic(site / SCORES / f"{name}.json", folder.score.read_bytes())
    scores = [read_score(file) for file in sorted((site / SCORES).glob("*.json"))]
    write_atomic(site / INDEX, leaderboard_page(scores))
    return site / INDEX


def differences(folder: ScoreFolder, config: ScoreConfig, score: Score) -> list[str]:
    """Return what of a score does not follow from its folder; fitness before training needs a simulation to check."""
    if score.protocol != VERSION:
        return [f"protocol {score.protocol}, and this version has {VERSION}"]
    outcomes = [read_task(folder, config, task) for task in tasks_of(folder, config)]
    for outcome in outcomes:
        outcome.run.folder.refuse_changed(outcome.run.folder.results)
    again = json.loads(score_document(config, outcomes).as_json())
    wrong = _unequal(json.loads(score.as_json()), again)
    for outcome in outcomes:
        for (name, _), search in zip(outcome.names, outcome.searches):
            wrong += _unwritten(outcome.run, name, search, score)
    return wrong


def _unequal(found: Any, expected: Any, where: str = "") -> list[str]:
    """Return where two documents differ, by dotted keys."""
    if isinstance(found, dict) and isinstance(expected, dict):
        keys = [key for key in {**found, **expected} if key not in _UNCHECKED]
        return [each for k in keys for each in _unequal(found.get(k), expected.get(k), f"{where}.{k}".lstrip("."))]
    if isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        return [each for k, pair in enumerate(zip(found, expected)) for each in _unequal(*pair, f"{where}.{k}")]
    if isinstance(found, float) and isinstance(expected, float) and math.isclose(found, expected, rel_tol=1e-6):
        return []
    if found == expected:
        return []
    return [f"{where} is {found!r}, and its runs give {expected!r}"]


def _unwritten(run: OpenedRun, name: str, search: SearchOutcome, score: Score) -> list[str]:
    """Return whether a search's winner is not what trained, or what its model wrote."""
    if search.winner is None:
        return []
    wrong = (
        [] if run.source(name).source == search.winner.source else [f"{name} is not the winner of {search.folder.path}"]
    )
    if score.model not in WITHOUT_MODEL:
        records, _ = read_records(search.folder.transcript)
        replies = [record["reply"]["text"] for record in records if record["type"] == "reply"]
        texts = [written_source(text, TRACKS[score.track])[0] for text in replies]
        # an agent's calls
        texts += [text for record in records if record["type"] == "call" for text in record.get("sources", {}).values()]
        if search.winner.source not in texts:
            wrong.append(f"{search.folder.transcript} has no reply with {search.winner.name}")
    return wrong


def score_json(score: Score) -> str:
    """Return score.json, with an indent, because people read it."""
    return json.dumps(json.loads(score.as_json()), indent=1, ensure_ascii=False) + "\n"
