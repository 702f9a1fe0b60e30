"""What a search remembers: every attempt with what came of it, and the baselines beside them."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Protocol, Sequence, Tuple

from envcoder_bench.report.files import write_atomic
from envcoder_bench.report.points import Point
from envcoder_bench.report.results import FAILED, FAILED_AT_LOAD, OK

NO_CODE = "no_code"
STATUSES = (OK, FAILED_AT_LOAD, FAILED, NO_CODE)
_BEFORE = {"failed_at_load": FAILED_AT_LOAD}  # as archives of version 0.1.0 spell it


@dataclass(frozen=True)
class Proposal:
    """A candidate that a proposer wrote, before anything is known of it.

    Attributes:
        name: ``r2_03``: the fourth of the second round; the candidate's name in runs and reports.
        source: the text of its file; empty where the proposer got none.
        parents: names of the attempts that it was made from.
        origin: how it came to be, in one line.
        error: why there is no source, in one line; else empty.
    """

    name: str
    source: str
    parents: Tuple[str, ...] = ()
    origin: str = ""
    error: str = ""


@dataclass(frozen=True)
class Attempt:
    """A candidate and what came of it.

    Attributes:
        name, source, parents, origin: as in Proposal. The baselines have round 0.
        status: one of STATUSES: ``failed at load`` never trained, ``failed`` stopped in training or has no fitness.
        fitness: mean over the seeds that it was trained with, of all rounds; None where there is none.
        error: one line, ``FILE:LINE: in FUNCTION: MESSAGE``; empty when ok.
        episode_length: mean length of its evaluation episodes, control steps; None where there is none.
        points: how its first training went, evaluation by evaluation, for each seed.
        by_seed: fitness for each seed that it was trained with: the best so far is trained again in every round.
    """

    name: str
    round: int
    source: str
    parents: Tuple[str, ...] = ()
    origin: str = ""
    status: str = OK
    fitness: Optional[float] = None
    error: str = ""
    episode_length: Optional[float] = None
    points: Tuple[Point, ...] = ()
    by_seed: Dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", _BEFORE.get(self.status, self.status))
        if self.status not in STATUSES:
            raise ValueError(f"{self.name}: status {self.status!r}; it must be one of {', '.join(STATUSES)}")

    def measured_again(self, by_seed: Dict[int, float]) -> Attempt:
        """The attempt with the fitness of further seeds in its mean."""
        known = {**self.by_seed, **by_seed}
        return replace(self, by_seed=known, fitness=math.fsum(known.values()) / len(known)) if known else self


@dataclass
class Archive:
    """All attempts in the order they were made, and the baselines ``human`` and ``unshaped``."""

    attempts: List[Attempt] = field(default_factory=list)
    baselines: Dict[str, Attempt] = field(default_factory=dict)

    def best(self) -> Optional[Attempt]:
        """The attempt with the highest fitness, where the median of all counts as one seed more of each.

        So one lucky seed does not stand above what has proved itself over several. The earliest of equals; None before
        there is any.
        """
        measured = _measured(self.attempts)
        if not measured:
            return None
        median = statistics.median(fitness for _, fitness in measured)

        def expected(pair: Tuple[Attempt, float]) -> float:
            seeds = max(1, len(pair[0].by_seed))
            return (seeds * pair[1] + median) / (seeds + 1)

        return max(measured, key=expected)[0]

    def of_round(self, number: int) -> List[Attempt]:
        """The attempts that were made in a round; rounds count from 1."""
        return [attempt for attempt in self.attempts if attempt.round == number]

    def find(self, name: str) -> Attempt:
        """The attempt or baseline of this name. Raises KeyError."""
        return {**{attempt.name: attempt for attempt in self.attempts}, **self.baselines}[name]


def best_of(attempts: Sequence[Attempt]) -> Optional[Attempt]:
    """The one with the highest fitness, the earliest of equals; None where none has a fitness."""
    return max(_measured(attempts), key=lambda pair: pair[1], default=(None, 0.0))[0]


def _measured(attempts: Sequence[Attempt]) -> List[Tuple[Attempt, float]]:
    return [(a, a.fitness) for a in attempts if a.fitness is not None and a.status == OK]


def difference(attempt: Attempt, other: Attempt) -> Optional[float]:
    """By how much the first's fitness is above the other's: mean over the seeds that both were trained with."""
    common = [seed for seed in attempt.by_seed if seed in other.by_seed]
    if not common:
        return None
    return math.fsum(attempt.by_seed[seed] - other.by_seed[seed] for seed in common) / len(common)


class Proposer(Protocol):
    """Writes candidates. The same archive, round and count give the same proposals, so that a search can be resumed."""

    def propose(self, archive: Archive, round: int, count: int) -> List[Proposal]:
        """Write ``count`` candidates for a round, named ``proposal_name(round, k)``."""
        ...

    def repair(self, archive: Archive, failures: Sequence[Tuple[Proposal, str]]) -> List[Optional[Proposal]]:
        """For each proposal that failed with an error, one that may not, under the same name; None: there is none."""
        ...


def proposal_name(round: int, index: int) -> str:
    """``r2_03`` for the fourth candidate of the second round."""
    return f"r{round}_{index:02d}"


def write_archive(path: Path, archive: Archive) -> None:
    """Write archive.json atomically; the same archive gives the same bytes."""
    content = {
        "attempts": [_plain(attempt) for attempt in archive.attempts],
        "baselines": {name: _plain(attempt) for name, attempt in archive.baselines.items()},
    }
    write_atomic(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_archive(path: Path) -> Archive:
    """Read what ``write_archive`` wrote. Raises ValueError naming the file where it holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Archive(
            [_attempt(row) for row in content["attempts"]],
            {name: _attempt(row) for name, row in content["baselines"].items()},
        )
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a search's archive: {error}") from error


def _plain(attempt: Attempt) -> Dict[str, Any]:
    return _without_nan(asdict(attempt))


def _attempt(row: Dict[str, Any]) -> Attempt:
    known = dict(row)
    known["parents"] = tuple(row["parents"])
    known["by_seed"] = {int(seed): fitness for seed, fitness in row["by_seed"].items()}
    known["points"] = tuple(_point(point) for point in row["points"])
    return Attempt(**known)


def _point(row: Dict[str, Any]) -> Point:
    known: Dict[str, Any] = {key: math.nan if value is None else value for key, value in row.items()}
    known["components"] = {
        name: tuple(math.nan if x is None else x for x in three) for name, three in row["components"].items()
    }
    return Point(**known)


def _without_nan(value: Any) -> Any:
    """The same with None for numbers that are not finite, which JSON has not."""
    if isinstance(value, dict):
        return {key: _without_nan(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
