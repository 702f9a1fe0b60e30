"""Messages between the head of a run on several devices and its workers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from envcoder_bench.env.trajectories import Trajectories
from envcoder_bench.results.logs import Rows
from envcoder_bench.results.rows import Result
from envcoder_bench.run.folder.checkpoint import GroupKey
from envcoder_bench.run.folder.run_folder import CandidateSource
from envcoder_bench.run.prepare.groups import Faults
from envcoder_bench.run.prepare.plan import MemoryPlanner
from envcoder_bench.run.spec import RunConfig
from envcoder_bench.trainers.base import Widths

# messages from the head to a worker


@dataclass(frozen=True)
class WorkerSetup:
    """Arguments of a worker.

    Attributes:
        cfg: the run's config; its ``device`` is the worker's.
        sharers: number of workers that share the memory of the machine.
        cores: CPU cores that the worker may use, or None for all.
        neighbours: number of workers that share the cores of the machine, this one included.
    """

    cfg: RunConfig
    fitness: CandidateSource | None
    sharers: int = 1
    cores: tuple[int, ...] | None = None
    neighbours: int = 1


@dataclass(frozen=True)
class Check:
    """Load, check and trace candidates.

    Attributes:
        settle: called with the widths of valid candidates before they are grouped by seeds; for the one worker in this
            process, which checks all of them.
    """

    job: str
    sources: Sequence[CandidateSource]
    settle: Callable[[Mapping[str, Widths]], RunConfig] | None = None


@dataclass(frozen=True)
class Train:
    """Train a wave.

    Attributes:
        sources: the candidates of the groups, and the baselines.
        untrained: those of the human baseline by which the untrained policy is evaluated first.
        number, total: it is the ``number``-th of ``total`` waves.
        checkpoint_file: path of the job's checkpoint on the head's machine; empty to start at iteration 0.
        checkpoint: content of that file; None for a worker that can read it.
        from_rung: whether the groups begin with the states that this worker kept of them at a rung.
        best: best candidate of the other jobs so far, and its fitness.
        until: iteration at which the groups wait for the decision of a race, or None to train to the end.
        seeds: number of seeds of the run, which may have been chosen after the worker started.
    """

    job: str
    sources: Sequence[CandidateSource]
    groups: Sequence[GroupKey]
    untrained: Sequence[GroupKey] = ()
    number: int = 1
    total: int = 1
    checkpoint: bytes | None = None
    checkpoint_file: str = ""
    from_rung: bool = False
    best: tuple[str, float] | None = None
    until: int | None = None
    seeds: int = 1


Request = Check | Train

# messages from a worker to the head; those with ``job`` belong to a job


@dataclass(frozen=True)
class Ready:
    """The worker is ready for jobs.

    Attributes:
        software: versions and device, as in run.json.
        code: the ``code_digest`` of the worker's installation.
    """

    planner: MemoryPlanner
    software: dict[str, str | None]
    code: str
    node: str


@dataclass(frozen=True)
class UserMessage:
    """A log message for the user; ``level`` as in ``logging``."""

    level: int
    text: str


@dataclass(frozen=True)
class Checked:
    """The job is done: the widths of valid candidates, and the faults of the others."""

    job: str
    widths: Mapping[str, Widths]
    faults: Faults


@dataclass(frozen=True)
class Opened:
    """The job's wave is allocated, and its checkpoint, if any, is restored."""

    job: str


@dataclass(frozen=True)
class Progress:
    """An iteration is done."""

    job: str
    iteration: int
    env_steps: int
    best: tuple[str, float] | None


@dataclass(frozen=True)
class Evaluated:
    """The policies were evaluated: rows for results.csv, and the memory in use, in bytes."""

    job: str
    results: Sequence[Result]
    used_bytes: int


@dataclass(frozen=True)
class UntrainedEvaluated:
    """The untrained policy was evaluated: rows for results.csv, the rows logged, and trajectories by policy."""

    job: str
    results: Sequence[Result]
    rows: Rows
    trajectories: Mapping[str, Trajectories]


@dataclass
class JobCheckpoint:
    """A checkpoint was made: the content of its file, and the rows logged since the previous one."""

    job: str
    iteration: int
    content: bytes
    rows: Rows


@dataclass(frozen=True)
class Trained:
    """The job is done.

    Attributes:
        rows: the rows not sent yet.
        state: the state at the end, as a job's checkpoint file; None if it is not kept.
        trajectories: of the baselines among the groups.
    """

    job: str
    results: Sequence[Result]
    policies: Mapping[GroupKey, bytes]
    rows: Rows
    state: bytes | None
    trajectories: Mapping[str, Trajectories]


@dataclass(frozen=True)
class RungReached:
    """The job is done until the next rung.

    Attributes:
        content: the file with the states of the groups that have not failed.
        policies: their policy files, if the worker is in this process; else they are in ``content`` alone.
    """

    job: str
    results: Sequence[Result]
    content: bytes
    rows: Rows
    policies: Mapping[GroupKey, bytes]


@dataclass(frozen=True)
class TrainingStopped:
    """Training was stopped by request after an iteration, with a checkpoint."""

    job: str
    iteration: int


@dataclass(frozen=True)
class Printed:
    """What a candidate printed; ``on_screen`` if it is not only for run.log."""

    text: str
    on_screen: bool


@dataclass(frozen=True)
class OutOfMemory:
    """The job ran out of memory."""

    job: str
    reason: str


@dataclass(frozen=True)
class WorkerError:
    """An error that a retry cannot fix; ``is_user_error`` for a UserError, else the message is a traceback."""

    message: str
    is_user_error: bool


@dataclass(frozen=True)
class WorkerLost:
    """A worker has ended unexpectedly. Sent by the pool; ``is_crash`` if the worker's job may be the cause."""

    reason: str
    is_crash: bool = True
