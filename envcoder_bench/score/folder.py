"""The folder of a score: what was asked, what was drawn, and digests of all that has ended.

::

    config.yaml          what was asked
    notes.json           the seeds that were drawn, and digests of each search and run at its end
    unseen/              the unseen tasks, if any
    published/           the rewards of a method that has published them, if it is the model
    searches/TASK/K/     the K-th search of a task, a folder of auto-shape without final evaluation
    agents/TASK/K/       the session of an agent, of which that search is made: see agent.py
    final/TASK/          the run in which its winners and references train, with the held-out seeds
    score.json, report.html
"""

import shutil
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from envcoder_bench.core.errors import UserError, near_matches, user_input
from envcoder_bench.core.files import file_digest, refuse_taken, write_atomic
from envcoder_bench.core.folders import SCORE, other_kind
from envcoder_bench.core.shell import resume_command
from envcoder_bench.core.words import counted
from envcoder_bench.core.yaml_files import parse_plain, to_yaml
from envcoder_bench.score import published
from envcoder_bench.score.protocol import AGENT, BUDGETS, REFERENCE_MODELS, RUNS, TRACKS, VERSION, ScoredTask
from envcoder_bench.score.unseen import UNSEEN_TASKS

# files from which a score follows: of a run, of a search, and of the session of an agent
_OF_RUN = ("config.yaml", "run.json", "results.csv", "points.csv", "episodes.csv", "summary.json", "*/*/source.py")
_OF_SEARCH = (
    *("config.yaml", "archive.json", "transcript.jsonl", "rounds/*/round.json"),
    *(f"{run}/{name}" for run in ("rounds/*/run", "validation") for name in _OF_RUN),
)
_OF_AGENT = (
    *("session.json", "transcript.jsonl", "campaign/campaign.json"),
    *(f"campaign/jobs/*/run/{name}" for name in _OF_RUN),
)


@dataclass(frozen=True)
class ScoreConfig:
    """What was asked: config.yaml.

    Attributes:
        model: as of ``auto-shape --llm``, or one of REFERENCE_MODELS.
        tasks: names of tasks and sets.
        runs: searches of each task.
        held_out, unseen: the first of the held-out seeds, and the seed of the unseen tasks; 0 for one that is drawn.
        max_cost: US dollars for all requests together.
        overrides: ``key=value`` for all searches and runs; with any the protocol is changed.
        agent: the command of the agent, with its budget.
        protocol: the version that began it.
    """

    model: str
    track: str
    budget: str
    tasks: tuple[str, ...]
    runs: int = RUNS
    base_url: str | None = None
    max_cost: float | None = None
    held_out: int = 0
    unseen: int = 0
    overrides: tuple[str, ...] = ()
    agent: str = ""
    protocol: str = ""

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
        searches = counted(self.runs, "search", "searches")
        runs = [] if self.runs == RUNS else [f"{searches} of each task, not {RUNS}"]
        tasks = ["tasks with a published reward alone"] if published.method_of(self.model) else []
        seeds = ["held-out seeds that were given, not drawn"] if self.held_out else []
        return [*runs, *tasks, *seeds, *self.overrides]


Digests = dict[str, str]  # SHA-256 by path


@dataclass
class Notes:
    """What the harness draws and notes: notes.json.

    Attributes:
        unseen: the seed of each unseen task, by what it is made of.
        held_out: the first of the held-out seeds; 0 while a search is left.
        begun: the folders of searches and runs that have begun.
        ended: digests of the files of each search and run that has ended, by its folder.
    """

    unseen: dict[str, int] = field(default_factory=dict)
    held_out: int = 0
    begun: list[str] = field(default_factory=list)
    ended: dict[str, Digests] = field(default_factory=dict)


_CONFIG, _NOTES = TypeAdapter(ScoreConfig), TypeAdapter(Notes)


class ScoreFolder:
    """The paths of a score's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.notes = path / "notes.json"
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
            config = _CONFIG.validate_python(parse_plain(folder.config.read_text(encoding="utf-8")))
        except OSError as error:
            raise UserError(f"--resume {path}: it is not the folder of a score (no config.yaml)") from error
        except (ValidationError, ValueError) as error:
            raise UserError(f"{folder.config} is damaged: {' '.join(str(error).split())}") from error
        if config.protocol != VERSION:
            advice = f"use the version of envcoder-bench that began it; this one has {VERSION}"
            raise UserError(f"{path} has a score of the protocol {config.protocol or '0.3 or older'}", advice=advice)
        _refuse_unknown(f"{folder.config}: track", config.track, TRACKS)
        _refuse_unknown(f"{folder.config}: budget", config.budget, (*BUDGETS, AGENT))
        return folder, config

    def read_notes(self) -> Notes:
        """Return notes.json; empty before any. Raises UserError if it is damaged."""
        try:
            notes = _NOTES.validate_json(self.notes.read_bytes()) if self.notes.is_file() else Notes()
        except (OSError, ValidationError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{self.notes} is damaged ({reason}): restore a copy of it") from error
        for base in notes.unseen:
            _refuse_unknown(f"{self.notes}: unseen", base, UNSEEN_TASKS)
        return notes

    def write_notes(self, notes: Notes) -> None:
        write_atomic(self.notes, _NOTES.dump_json(notes, indent=1) + b"\n")

    def note_begun(self, notes: Notes, path: Path) -> None:
        """Note that a search or a run begins. What is in its place is removed, as somebody else has put it there."""
        name = str(path.relative_to(self.path))
        if name not in notes.begun:
            for part in self._parts(name):
                shutil.rmtree(self.path / part, ignore_errors=True)
            notes.begun.append(name)
            self.write_notes(notes)

    def note(self, notes: Notes, ended: Path) -> None:
        """Note how a search, with the session of its agent, or a run has ended."""
        name = str(ended.relative_to(self.path))
        notes.ended[name] = self._digests(name)
        self.write_notes(notes)

    def is_noted(self, notes: Notes, path: Path) -> bool:
        return str(path.relative_to(self.path)) in notes.ended

    def refuse_changed(self, notes: Notes) -> None:
        """Raise UserError if a file of a search or a run that has ended is not as it was."""
        for name, before in notes.ended.items():
            now = self._digests(name)
            changed = [file for file in {**before, **now} if before.get(file) != now.get(file)]
            if changed:
                raise UserError(f"{self.path / changed[0]} was changed after {name} had ended: restore a copy of it")

    @staticmethod
    def _parts(name: str) -> dict[str, tuple[str, ...]]:
        """Return the folders of a search, with the session of its agent, or of a run, with the files that count."""
        kind, _, rest = name.partition("/")
        return {name: _OF_SEARCH, f"agents/{rest}": _OF_AGENT} if kind == "searches" else {name: _OF_RUN}

    def _digests(self, name: str) -> Digests:
        parts = self._parts(name).items()
        files = [file for part, names in parts for each in names for file in sorted((self.path / part).glob(each))]
        return {str(file.relative_to(self.path)): file_digest(file) for file in files if file.is_file()}


def _refuse_unknown(where: str, name: str, known: Collection[str]) -> None:
    """Raise UserError for a name that the protocol does not have."""
    if name not in known:
        advice = "restore a copy of the file"
        raise UserError(
            f"{where} {name} is unknown{near_matches(name, known)}; there are {', '.join(known)}", advice=advice
        )
