"""A search's folder: its inputs, progress and results.

::

    config.yaml            the arguments and settings of the search, for --resume
    prompt/  start/        copies of the templates and of the candidates to begin with
    fitness.py             copy of the fitness file
    transcript.jsonl       every request and reply
    archive.json           every attempt of the finished rounds, with its scores and source
    rounds/<k>/            round.json, candidates/*.py, and run/, the run folder of the round
    best.py                the best candidate so far, with what is known of it as comments
    validation/            the run folder in which the best of all rounds are compared, with new seeds
    final/                 the run folder of the final evaluation: the best and both baselines, with new seeds
    report.html            the page of the search
    .lock                  held by the process that works on the search
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from envcoder_bench.core.errors import UserError, message_line, user_input
from envcoder_bench.core.files import refuse_taken, write_atomic
from envcoder_bench.core.folders import SEARCH, other_kind
from envcoder_bench.core.settings import Settings
from envcoder_bench.core.shell import resume_command
from envcoder_bench.core.yaml_files import parse_yaml, to_yaml
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.search.archive import Archive, Proposal, StoredFault, read_archive
from envcoder_bench.search.llm import Usage

PROMPT, START, FITNESS = "prompt", "start", "fitness.py"  # copies of the user's files


@dataclass
class Round:
    """The checked candidates of a round.

    Attributes:
        number: the round, from 1.
        ready: candidates that can be trained.
        failed: the others, with status and fault.
        repaired: for ready candidates that were repaired, the fault of the previous version.
        usage: requests and tokens of the round.
        stopped: why the search ends after this round; empty if it continues.
    """

    number: int
    ready: list[Proposal] = field(default_factory=list)
    failed: list[tuple[Proposal, str, StoredFault]] = field(default_factory=list)
    repaired: dict[str, StoredFault] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    stopped: str = ""


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, 118, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)


_ROUND = TypeAdapter(Round)  # round.json


class SearchFolder:
    """The paths of a search's folder, and reading and writing of its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.transcript = path / "transcript.jsonl"
        self.archive = path / "archive.json"
        self.best = path / "best.py"
        self.validation = path / "validation"
        self.final = path / "final"
        self.command = resume_command(path, "auto-shape")

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], files: Mapping[str, str]) -> SearchFolder:
        """Create the folder with the config and ``files``, texts by relative path.

        Raises:
            UserError: if the path is a file or a folder that is not empty, or cannot be written.
        """
        with user_input():
            refuse_taken(path, kind="search")
        folder = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path / name, text)
            write_atomic(folder.config, to_yaml(config))  # last, for --resume
        except OSError as error:
            raise UserError(f"--output_dir {path} cannot be written: {error}") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple[SearchFolder, Settings]:
        """Open a search to resume it; return the folder and its config.

        Raises:
            UserError: if the folder has no search, or its config is damaged.
        """
        folder = cls(path)
        if not folder.config.is_file():
            raise UserError(f"--resume {path}: it is not the folder of a search (no config.yaml)")
        other = other_kind(path, SEARCH)
        if other is not None:
            raise UserError(other)
        try:
            config = parse_yaml(folder.config.read_text(encoding="utf-8"))
            if "llm" not in config:
                raise ValueError("its config.yaml is not that of a search")
        except (OSError, ValueError) as error:
            raise UserError(f"--resume {path}: {str(error).splitlines()[0]}") from error
        return folder, config

    def read_archive(self) -> Archive:
        """Return the archive, which is empty before the first round is finished. Raises UserError if it is damaged."""
        if not self.archive.is_file():
            return Archive()
        try:
            return read_archive(self.archive)
        except (OSError, ValueError) as error:
            raise UserError(f"--resume {self.path}: {error}") from error

    def write_best(self, archive: Archive, facts: Mapping[str, str]) -> None:
        """Write the best candidate to best.py, below comments with facts by title; nothing without one."""
        best = archive.best()
        if best is not None:
            lines = [line for title, text in facts.items() for line in _comment(f"{title}: {text}")]
            write_atomic(self.best, "\n".join([*lines, best.source]))

    def candidate(self, name: str) -> Path:
        """Return the file of an attempt, whose name begins with its round: ``r2_03``."""
        return self.round(int(name[1 : name.index("_")])) / "candidates" / f"{name}.py"

    def round(self, number: int) -> Path:
        return self.path / "rounds" / str(number)

    def run(self, number: int) -> RunFolder:
        """Return the run folder of a round."""
        return RunFolder(self.round(number) / "run")

    @property
    def endings(self) -> int:
        """How often validation or final evaluation have ended a search of fewer rounds: ``final_1``, ``final_2`` ..."""
        return max(len(list(self.path.glob(f"{run.name}_*"))) for run in (self.validation, self.final))

    def keep_ending(self) -> None:
        """Keep validation and final evaluation of fewer rounds in folders ``validation_1``, ``final_1`` ..."""
        number = self.endings + 1
        for run in (self.final, self.validation):
            if run.is_dir():
                run.rename(self.path / f"{run.name}_{number}")

    def write_sources(self, proposals: Sequence[Proposal]) -> None:
        """Write candidates to their files."""
        for proposal in proposals:
            path = self.candidate(proposal.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, proposal.source)

    def read_round(self, number: int) -> Round | None:
        """Return the candidates of a round; None if they are not all checked yet.

        Raises:
            UserError: if the file is damaged.
        """
        path = self.round(number) / "round.json"
        if not path.is_file():
            return None
        try:
            return _ROUND.validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            reason = message_line(error)
            raise UserError(f"{path} is damaged ({reason}): delete it to propose the round again") from error

    def write_round(self, round: Round) -> None:
        """Write round.json."""
        path = self.round(round.number) / "round.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, _ROUND.dump_json(round, indent=1).decode() + "\n")

    def clear_unfinished(self, run: RunFolder) -> None:
        """Remove a run's folder whose creation was interrupted; nothing was trained in it."""
        if run.path.is_dir() and not run.config.is_file():
            shutil.rmtree(run.path)
