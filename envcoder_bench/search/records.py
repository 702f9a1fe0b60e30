"""What a search remembers: every attempt with what came of it, and the baselines beside them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Sequence

from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.points import Point
from envcoder_bench.report.ranking import mean_interval
from envcoder_bench.report.results import FAILED, FAILED_AT_LOAD, OK
from envcoder_bench.search.merit import Merit, levels, merits
from envcoder_bench.tasks.base import HUMAN

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
    parents: tuple[str, ...] = ()
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
        over_episodes: 95 % interval of the fitness over the episodes of its one seed; None where it has several.
    """

    name: str
    round: int
    source: str
    parents: tuple[str, ...] = ()
    origin: str = ""
    status: str = OK
    fitness: float | None = None
    error: str = ""
    episode_length: float | None = None
    points: tuple[Point, ...] = ()
    by_seed: dict[int, float] = field(default_factory=dict)
    over_episodes: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", _BEFORE.get(self.status, self.status))
        if self.status not in STATUSES:
            raise ValueError(f"{self.name}: status {self.status!r}; it must be one of {', '.join(STATUSES)}")

    def measured_again(self, by_seed: dict[int, float]) -> Attempt:
        """The attempt with the fitness of further seeds in its mean."""
        known = {**self.by_seed, **by_seed}
        if not known:
            return self
        one = self.over_episodes if len(known) == 1 else None
        return replace(self, by_seed=known, fitness=math.fsum(known.values()) / len(known), over_episodes=one)

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the fitness: over the seeds where there are several, else over the episodes of the one."""
        if len(self.by_seed) < 2:
            return self.over_episodes
        _, low, high = mean_interval(list(self.by_seed.values()))
        return low, high


@dataclass
class Archive:
    """All attempts in the order they were made, and the baselines ``human`` and ``unshaped``.

    Attributes:
        reference: the baseline that attempts are compared with: the one that fills in for the functions they lack.
        seeds: those of each round.
    """

    attempts: list[Attempt] = field(default_factory=list)
    baselines: dict[str, Attempt] = field(default_factory=dict)
    reference: str = HUMAN
    seeds: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def merits(self) -> dict[str, Merit]:
        """What every attempt and baseline that has a fitness is worth, by name; see merit.py."""
        attempts, baselines = _measured(self.attempts), _measured(list(self.baselines.values()))
        values = {a.name: (fitness, a.by_seed) for a, fitness in [*baselines, *attempts]}
        anchors = [a.by_seed for a in sorted(self.baselines.values(), key=lambda a: a.name != self.reference)]
        if any(anchors):
            fewest = min((len(a.by_seed) for a, _ in attempts if a.by_seed), default=0)
            anchors += [a.by_seed for a, _ in attempts if len(a.by_seed) > fewest]  # trained again in later rounds
        return merits(values, levels(anchors), [a.name for a, _ in attempts])

    def order(self) -> list[str]:
        """The names of all baselines and attempts that have a fitness: the best first, the earlier first of equals."""
        worth = self.merits()
        return sorted(worth, key=lambda name: worth[name].rank, reverse=True)  # stable, also reversed

    def ranked(self, attempts: Sequence[Attempt] | None = None) -> list[Attempt]:
        """Attempts that have a fitness, the best first; of all, or of those given."""
        known = {a.name: a for a, _ in _measured(self.attempts if attempts is None else attempts)}
        return [known[name] for name in self.order() if name in known]

    def best(self) -> Attempt | None:
        """The first of ``ranked``; None before there is any."""
        return next(iter(self.ranked()), None)

    def of_round(self, number: int) -> list[Attempt]:
        """The attempts that were made in a round; rounds count from 1."""
        return [attempt for attempt in self.attempts if attempt.round == number]

    def until(self, number: int) -> Archive:
        """The archive without the attempts of later rounds, measured as they are by now."""
        return replace(self, attempts=[a for a in self.attempts if a.round <= number])

    def in_round(self, attempt: Attempt, number: int) -> float | None:
        """The mean fitness of an attempt or baseline with the seeds of a round; None where it has none."""
        values = [attempt.by_seed[seed] for seed in self.seeds.get(number, ()) if seed in attempt.by_seed]
        return math.fsum(values) / len(values) if values else None

    def find(self, name: str) -> Attempt:
        """The attempt or baseline of this name. Raises KeyError."""
        return {**{attempt.name: attempt for attempt in self.attempts}, **self.baselines}[name]


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """The one with the highest fitness, whatever its seeds, the earliest of equals; None where none has a fitness."""
    return max(_measured(attempts), key=lambda pair: pair[1], default=(None, 0.0))[0]


def _measured(attempts: Sequence[Attempt]) -> list[tuple[Attempt, float]]:
    return [(a, a.fitness) for a in attempts if a.fitness is not None and a.status == OK and math.isfinite(a.fitness)]


def differences(attempt: Attempt, other: Attempt) -> list[float]:
    """By how much the first's fitness is above the other's, for each seed that both were trained with."""
    return [fitness - other.by_seed[seed] for seed, fitness in attempt.by_seed.items() if seed in other.by_seed]


def difference(attempt: Attempt, other: Attempt) -> float | None:
    """The mean of ``differences``; None where there are none."""
    found = differences(attempt, other)
    return math.fsum(found) / len(found) if found else None


class Proposer(Protocol):
    """Writes candidates. The same archive, round and count give the same proposals, so that a search can be resumed."""

    def propose(self, archive: Archive, round: int, count: int) -> list[Proposal]:
        """Write ``count`` candidates for a round, named ``proposal_name(round, k)``."""
        ...

    def repair(self, archive: Archive, failures: Sequence[tuple[Proposal, str]]) -> list[Proposal | None]:
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
        "reference": archive.reference,
        "seeds": {number: list(seeds) for number, seeds in archive.seeds.items()},
    }
    write_atomic(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_archive(path: Path) -> Archive:
    """Read what ``write_archive`` wrote, also before it had the last two keys.

    Raises:
        ValueError: the file holds something else; the message names it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        attempts = [_attempt(row) for row in content["attempts"]]
        baselines = {name: _attempt(row) for name, row in content["baselines"].items()}
        rounds = content["seeds"] if "seeds" in content else _seeds_of_rounds(attempts)
        seeds = {int(number): tuple(seeds) for number, seeds in rounds.items()}
        return Archive(attempts, baselines, content.get("reference", HUMAN), seeds)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: not a search's archive: {error}") from error


def _seeds_of_rounds(attempts: Sequence[Attempt]) -> dict[int, list[int]]:
    """The seeds of each round: they ascend, and all rounds have as many; only the best so far has more than its own."""
    measured = [attempt for attempt in attempts if attempt.by_seed]
    count = min((len(attempt.by_seed) for attempt in measured), default=0)
    return {attempt.round: sorted(attempt.by_seed)[:count] for attempt in measured}


def _plain(attempt: Attempt) -> dict[str, Any]:
    return _without_nan(asdict(attempt))


def _attempt(row: dict[str, Any]) -> Attempt:
    known = dict(row)
    known["parents"] = tuple(row["parents"])
    known["by_seed"] = {int(seed): fitness for seed, fitness in row["by_seed"].items()}
    known["points"] = tuple(_point(point) for point in row["points"])
    over_episodes = row.get("over_episodes")
    known["over_episodes"] = None if over_episodes is None else (float(over_episodes[0]), float(over_episodes[1]))
    return Attempt(**known)


def _point(row: dict[str, Any]) -> Point:
    known: dict[str, Any] = {key: math.nan if value is None else value for key, value in row.items()}
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
