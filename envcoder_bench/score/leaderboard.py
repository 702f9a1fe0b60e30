"""A static site of scores: ``leaderboard add SCORE_FOLDER --site DIR`` checks a score and writes the page anew.

A score is checked against its folder: that its numbers follow from the runs on held-out seeds, that each winner's text
is the one that was trained, and that a model wrote it, as its transcript says.
"""

import json
import math
import re
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.run.folder.policies import open_run
from envcoder_bench.score.document import Score, total
from envcoder_bench.score.page import leaderboard_page
from envcoder_bench.score.protocol import REFERENCE_MODELS, TRACKS, VERSION
from envcoder_bench.score.run import ScoreFolder, file_hash
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.search.llm import written_source
from envcoder_bench.search.providers.choice import WITHOUT_MODEL
from envcoder_bench.search.providers.transcript import read_records

INDEX, SCORES = "index.html", "scores"
_CLOSE = 1e-9
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
    folder = ScoreFolder(path)
    score = read_score(folder.score)
    wrong = differences(folder, score)
    if wrong:
        raise UserError(f"{folder.score} does not agree with its folder: {'; '.join(wrong)}")
    name = re.sub(r"[^\w.-]+", "_", f"{score.model}_{score.track}_{score.budget}_{file_hash(folder.score)[:8]}")
    (site / SCORES).mkdir(parents=True, exist_ok=True)
    write_atomic(site / SCORES / f"{name}.json", folder.score.read_bytes())
    scores = [read_score(file) for file in sorted((site / SCORES).glob("*.json"))]
    write_atomic(site / INDEX, leaderboard_page(scores))
    return site / INDEX


def differences(folder: ScoreFolder, score: Score) -> list[str]:
    """Return what of a score does not follow from its folder."""
    wrong = [] if score.protocol == VERSION else [f"protocol {score.protocol}, and this version has {VERSION}"]
    again = total(score.tasks)
    if not _equal(again.mean, score.score.mean):
        wrong.append(f"the score is {again.mean:.6g} by its tasks, and the file says {score.score.mean:.6g}")
    for task in score.tasks:
        run = open_run(folder.path / "final" / task.name)
        rows = {row.key: row.fitness for row in run.rows if row.measured}
        for name, values in task.references.items():
            if [rows.get((name, seed), math.nan) for seed in task.seeds] != list(values):
                wrong.append(f"{task.name}: fitness of {name} differs from results.csv")
        hashes = {name: file_hash(run.folder.source(name)) for name in run.sources}
        for number, each in enumerate(task.runs):
            trained = next((name for name, found in hashes.items() if found == each.source), None)
            if each.winner and trained is None:
                wrong.append(f"{task.name}, search {number + 1}: the text of {each.winner} is not in its run")
            elif trained and [rows.get((trained, seed)) for seed in task.seeds] != list(each.fitness):
                wrong.append(f"{task.name}, search {number + 1}: fitness of {each.winner} differs from results.csv")
            if score.model not in REFERENCE_MODELS:
                wrong += _of_search(folder, task.name, number, each.winner, each.transcript, score)
    return wrong


def _of_search(folder: ScoreFolder, task: str, number: int, winner: str, transcript: str, score: Score) -> list[str]:
    """Return what of a search's winner does not follow from its archive and its transcript."""
    search, where = SearchFolder(folder.path / "searches" / task / str(number)), f"{task}, search {number + 1}"
    if file_hash(search.transcript) != transcript:
        return [f"{where}: transcript.jsonl has changed"]
    attempt = search.read_archive().by_name.get(winner)
    if not winner or score.model in WITHOUT_MODEL:
        return []
    if attempt is None:
        return [f"{where}: {winner} is not in its archive"]
    records, _ = read_records(search.transcript)
    replies = [record["reply"]["text"] for record in records if record["type"] == "reply"]
    wrote = any(written_source(text, TRACKS[score.track])[0] == attempt.source for text in replies)
    return [] if wrote else [f"{where}: no reply is {winner}"]


def _equal(first: float, second: float) -> bool:
    return (math.isnan(first) and math.isnan(second)) or abs(first - second) <= _CLOSE * max(1.0, abs(first))


def score_json(score: Score) -> str:
    """Return score.json, with an indent, because people read it."""
    return json.dumps(json.loads(score.as_json()), indent=1, ensure_ascii=False) + "\n"
