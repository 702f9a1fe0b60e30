"""The state of a campaign: candidates, jobs, champion, seeds and budget. It is on disk after each change.

::

    campaign.json          the state below, and the settings that the user gave
    candidates/NAME.py     every candidate that was trained, as it was
    jobs/jK/run            the run folder of a job; with result.json, the whole answer, and events.jsonl, its progress
    task.md                what a candidate's author must know
    token                  of the HTTP server
    .lock                  held by the server
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.tasks.base import HUMAN

FINAL_SEED = 2_000_000_000  # first seed of final evaluations; those of other jobs are below
MOST_SEEDS = 50  # a job may have so many
FILE = "campaign.json"

Kind = Literal["rank", "terms", "sweep", "final"]
QUEUED, RUNNING, DONE, FAILED = "queued", "running", "done", "failed"


@dataclass
class Job:
    """A run of the campaign.

    Attributes:
        name: ``j1``, ``j2`` ...
        candidates, parent: the names of what it trains beside champion and baselines, and the file they are made from.
        champion: with which the candidates are compared.
        first: number of attempts before it.
        sweep: ``NAME=V,V``.
        question: what the agent wants to know.
        policies, seconds: what it trained, and for how long.
        error: why it failed.
    """

    name: str
    kind: Kind
    candidates: list[str]
    champion: str
    seed: int
    seeds: int
    iterations: int
    first: int = 0
    parent: str = ""
    sweep: list[str] = field(default_factory=list)
    question: str = ""
    status: Literal["queued", "running", "done", "failed"] = "queued"
    pid: int = 0
    policies: int = 0
    seconds: float = 0.0
    error: dict[str, Any] = field(default_factory=dict)


@dataclass
class State:
    """What campaign.json holds.

    Attributes:
        task, overrides: the task, empty until one is chosen, and ``key=value`` of its runs.
        budget: seconds of training that all jobs may take together.
        every: number of attempts for which there is one final evaluation, and over which verdicts are corrected.
        champion, champion_job: the best candidate, and the job that said so; HUMAN before any.
        next_seed: the first seed that no job has.
    """

    task: str = ""
    overrides: list[str] = field(default_factory=list)
    budget: float = 3600.0
    every: int = 18
    champion: str = HUMAN
    champion_job: str = ""
    next_seed: int = 1
    jobs: list[Job] = field(default_factory=list)


_STATE = TypeAdapter(State)


class Campaign:
    """The state in its folder; the folder is locked by the caller."""

    def __init__(self, folder: Path, settings: State | None = None) -> None:
        """Open a campaign, or begin one with ``settings``. Raises UserError if the state is damaged."""
        self.folder, self._lock = folder, threading.RLock()
        file = folder / FILE
        if file.exists():
            try:
                self.state = _STATE.validate_json(file.read_bytes())
            except (OSError, ValidationError) as error:
                raise UserError(
                    f"{file} is damaged: restore a copy of it, or give another folder", file=file
                ) from error
        else:
            self.state = settings or State()
            (folder / "candidates").mkdir(parents=True, exist_ok=True)
            self._save()

    @contextmanager
    def change(self) -> Iterator[State]:
        """Change the state in this block; it is written at its end."""
        with self._lock:
            yield self.state
            self._save()

    def _save(self) -> None:
        write_atomic(self.folder / FILE, _STATE.dump_json(self.state, indent=1) + b"\n")

    def job(self, name: str) -> Job:
        """Return a job. Raises UserError for a name that no job has."""
        for job in self.state.jobs:
            if job.name == name:
                return job
        names = ", ".join(job.name for job in self.state.jobs[-5:])
        advice = f"the last jobs are {names}" if names else "the first job is made by the tool rank"
        raise UserError(f"no job '{name[:40]}'", advice=advice)

    def home(self, job: Job) -> Path:
        """Return the folder of a job."""
        return self.folder / "jobs" / job.name

    def run(self, job: Job) -> Path:
        """Return the run folder of a job."""
        return self.home(job) / "run"

    def source(self, name: str) -> Path:
        """Return the copy of a candidate's file."""
        return self.folder / "candidates" / f"{name}.py"

    def files(self, job: Job) -> list[Path]:
        """Return the files that a job trains, the champion's included."""
        names = [*job.candidates, *([job.champion] if job.kind == "rank" and job.champion != HUMAN else [])]
        return [self.source(name) for name in dict.fromkeys(names)]

    def rankings(self, last: Job | None = None) -> list[Job]:
        """Return the jobs that rank candidates and have not failed; those up to ``last``, if it is given."""
        jobs = self.state.jobs[: self.state.jobs.index(last) + 1 if last in self.state.jobs else None]
        return [job for job in jobs if job.kind == "rank" and job.status != FAILED]

    @property
    def candidates(self) -> int:
        """The number of different candidates that were ranked so far."""
        return len({name for job in self.rankings() for name in job.candidates})

    @property
    def attempts(self) -> int:
        """The number of candidates that were ranked so far; a candidate that is ranked again counts again."""
        return sum(len(job.candidates) for job in self.rankings())

    @property
    def used(self) -> float:
        """Seconds of training so far."""
        return sum(job.seconds for job in self.state.jobs)

    @property
    def ledger(self) -> str:
        """What was tried so far, in words."""
        return f"{self.attempts} attempts, {sum(job.policies for job in self.state.jobs)} policies"

    @property
    def spent(self) -> dict[str, Any]:
        """Budget and ledger for an answer."""
        budget = {"used_s": round(self.used), "left_s": round(max(0.0, self.state.budget - self.used))}
        return {"budget": budget, "ledger": self.ledger}

    def add(self, kind: Kind, candidates: Sequence[str], seeds: int, iterations: int, **more: Any) -> Job:
        """Add a job to the queue, with seeds that no other job has.

        Raises UserError if the budget is used up, there are too many seeds, or a final evaluation is not due.
        """
        if not 1 <= seeds <= MOST_SEEDS:
            raise UserError(f"seeds must be 1 to {MOST_SEEDS}, got {seeds}")
        with self.change() as state:
            if self.used >= state.budget:
                raise UserError(f"the budget of {state.budget:.0f} s is used up", advice="ask the user for more")
            seed = state.next_seed
            if kind == "final":
                seed = FINAL_SEED + MOST_SEEDS * self._finals()
            else:
                state.next_seed += seeds
            name = f"j{len(state.jobs) + 1}"
            first = self.attempts
            job = Job(name, kind, [*candidates], state.champion, seed, seeds, iterations, first, **more)
            state.jobs.append(job)
            return job

    def _finals(self) -> int:
        """Return how many final evaluations there were. Raises UserError if the next one is not due."""
        finals = [job for job in self.state.jobs if job.kind == "final" and job.status != FAILED]
        if self.state.champion == HUMAN:
            raise UserError("no champion: no candidate was better than human", advice="rank others, with more seeds")
        if finals and self.attempts - finals[-1].first < self.state.every:
            left = self.state.every - (self.attempts - finals[-1].first)
            raise UserError(
                f"there is one final evaluation for {self.state.every} attempts", advice=f"rank {left} more candidates"
            )
        return len(finals)

    @property
    def rate(self) -> float | None:
        """Iterations of a policy in a second, measured by the jobs so far; None before any."""
        done = [job for job in self.state.jobs if job.status == DONE and job.policies and job.seconds > 0]
        if not done:
            return None
        return sum(job.policies * job.iterations for job in done) / sum(job.seconds for job in done)
