"""The archive of a search: all attempts and baselines with their results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import BeforeValidator, ConfigDict, TypeAdapter

from envcoder_bench.core.files import write_atomic
from envcoder_bench.results.fitness_model import Difference, FitnessModel
from envcoder_bench.results.logs import Course, Point
from envcoder_bench.results.rows import FAILED, FAILED_AT_LOAD, OK, STOPPED
from envcoder_bench.results.statistics import UNBOUNDED
from envcoder_bench.search.merit import Merits
from envcoder_bench.shaping.contract import Fault, read_fault
from envcoder_bench.tasks.base import HUMAN

NO_CODE = "no_code"
STATUSES = (OK, FAILED_AT_LOAD, FAILED, NO_CODE)
NO_REPLY = "no reply"  # all that prompts say of errors of servers and of refusals

# faults in the JSON of a search
StoredFault = Annotated[Fault, BeforeValidator(read_fault)]
OptionalFault = Annotated[Fault | None, BeforeValidator(read_fault)]


@dataclass(frozen=True)
class Proposal:
    """A candidate that a proposer wrote, not yet checked.

    Attributes:
        name: name in runs and reports; ``r2_03`` is the fourth of the second round.
        source: the text of its file; empty if the proposer got none.
        parents: names of the attempts from which it was made.
        origin: description of how it was made, in one line.
        fault: why the source is missing; otherwise None. Prompts show it to the model.
        note: further facts for the user, which no prompt shows: messages of servers, the reason why a repair failed.
        reply: beginning of a reply that is complete and has no candidate, for a repair; otherwise empty.
        left_out: functions that the model wrote besides and the search does not ask for; they are not in the source.
        term, factor: of a variant of its only parent, the reward term that is multiplied, and by what; see terms.py.
    """

    name: str
    source: str
    parents: tuple[str, ...] = ()
    origin: str = ""
    fault: OptionalFault = None
    left_out: tuple[str, ...] = ()
    note: str = ""
    reply: str = ""
    term: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Attempt:
    """A candidate and its result.

    Attributes:
        name, source, parents, origin, left_out, note, term, factor: as in Proposal.
        round: the round in which it was made; 0 for baselines.
        status: one of STATUSES: ``failed at load`` was never trained, ``failed`` stopped in training or has no fitness.
        fitness: mean over all seeds with which it was trained, in all rounds; None if there is none.
        fault: why it was not trained or has no fitness, without folders; otherwise None.
        episode_length: mean length of its evaluation episodes, control steps; None if unknown.
        points, courses: the evaluations in its trainings, and where in the episodes its fitness comes from, by seed.
        ended: how many episodes each condition of the task ended early, see ``Metrics``.
        hacked: why its policies are taken to exploit its reward; empty if not.
        remarks: on its reward, of the states that the baselines' and the untrained policies met, see run/lint.py.
        same_as: another candidate of its round or a baseline, whose reward has the same values; see run/lint.py.
        by_seed: fitness by seed; the best so far are trained again in every round.
        over_episodes: 95 % interval of the fitness over the episodes of a single seed; None if it has several.
        stopped_at: the iteration at which the race of its round stopped it, and of which its fitness is; 0 if none did.
    """

    name: str
    round: int
    source: str
    parents: tuple[str, ...] = ()
    origin: str = ""
    status: str = OK
    fitness: float | None = None
    fault: OptionalFault = None
    episode_length: float | None = None
    points: tuple[Point, ...] = ()
    by_seed: dict[int, float] = field(default_factory=dict)
    over_episodes: tuple[float, float] | None = None
    stopped_at: int = 0
    left_out: tuple[str, ...] = ()
    note: str = ""
    term: str = ""
    factor: float = 1.0
    courses: tuple[Course, ...] = ()
    ended: str = ""
    hacked: str = ""
    remarks: tuple[str, ...] = ()
    same_as: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"{self.name}: status {self.status!r}; it must be one of {', '.join(STATUSES)}")

    def measured_again(self, by_seed: dict[int, float]) -> Attempt:
        """Return the attempt with the fitness of further seeds."""
        every = {**self.by_seed, **by_seed}
        if not every:
            return self
        over_episodes = self.over_episodes if len(every) == 1 else None
        return replace(self, by_seed=every, fitness=math.fsum(every.values()) / len(every), over_episodes=over_episodes)

    @property
    def outcome(self) -> str:
        """The status in words."""
        return f"{STOPPED} at {self.stopped_at}" if self.stopped_at else self.status.replace("_", " ")

    @property
    def reason(self) -> str:
        """The fault with the note, for the user."""
        return noted(self.fault, self.note)


@dataclass
class Archive:
    """The attempts of a search and the baselines ``human`` and ``unshaped``.

    Attributes:
        attempts: all attempts in the order in which they were made.
        baselines: the baselines by name.
        reference: the baseline that fills in missing functions, with which attempts are compared.
        seeds: the seeds of each round.
        bounds, episodes: the least and the greatest fitness of an episode, and the number of them with each seed.
        untrained: the row ``untrained`` of the rounds' runs, with the seeds of all rounds; None before the first.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", ser_json_inf_nan="strings")  # archive.json

    attempts: list[Attempt] = field(default_factory=list)
    baselines: dict[str, Attempt] = field(default_factory=dict)
    reference: str = HUMAN
    seeds: dict[int, tuple[int, ...]] = field(default_factory=dict)
    untrained: Attempt | None = None
    bounds: tuple[float, float] = UNBOUNDED
    episodes: int = 1

    def model(self) -> FitnessModel:
        """Return what is known of the fitness of all whole trainings, by attempt and baseline."""
        whole = [a for a, _ in _measured([*self.baselines.values(), *self.attempts]) if not a.stopped_at]
        return FitnessModel({a.name: a.by_seed for a in whole}, bounds=self.bounds, episodes=self.episodes)

    def interval(self, attempt: Attempt, model: FitnessModel) -> tuple[float, float] | None:
        """Return the 95 % interval of a fitness: over several seeds, else over the episodes of the only one."""
        if len(attempt.by_seed) < 2 or attempt.name not in model.names:
            return attempt.over_episodes
        _, low, high = model.interval(attempt.name)
        return low, high

    @property
    def references(self) -> list[Attempt]:
        """The baselines and the untrained policy, with which reports compare attempts."""
        return [*self.baselines.values(), *filter(None, [self.untrained])]

    def merits(self) -> Merits:
        """Return what is known of all attempts, baselines and ``untrained`` with a whole training."""
        whole = [a for a, _ in _measured([*self.references, *self.attempts]) if not a.stopped_at]
        # a fitness without seeds counts as that of one
        results = [(a.name, a.round > 0, tuple((a.by_seed or {-1: a.fitness or 0.0}).items())) for a in whole]
        return _merits(tuple(results), self.reference, self.bounds)

    def order(self) -> list[str]:
        """Return the names of all baselines and attempts that have a fitness, the best first; of equals the earlier.

        Attempts that a race stopped come last: their fitness is that of a shorter training.
        """
        merits = self.merits()
        stopped = {a.name: x for a, x in _measured(self.attempts) if a.stopped_at}
        whole = sorted(merits.names, key=merits.score, reverse=True)  # stable even if reversed
        return whole + sorted(stopped, key=lambda name: stopped[name], reverse=True)

    def ranked(self, attempts: Sequence[Attempt] | None = None) -> list[Attempt]:
        """Return the attempts that have a fitness, the best first; of all attempts by default."""
        measured = {a.name: a for a, _ in _measured(self.attempts if attempts is None else attempts)}
        return [measured[name] for name in self.order() if name in measured]

    def leaders(self, count: int) -> list[Attempt]:
        """Return the best ``count`` attempts with a whole training; those with the rewards of others are left out."""
        return [attempt for attempt in self.ranked() if not attempt.stopped_at and not attempt.same_as][:count]

    def best(self) -> Attempt | None:
        """Return the first of ``ranked``, before all with the rewards of others; None if it is empty."""
        ranked = self.ranked()
        return next((attempt for attempt in ranked if not attempt.same_as), next(iter(ranked), None))

    def of_round(self, number: int) -> list[Attempt]:
        """Return the attempts of a round; rounds count from 1."""
        return [attempt for attempt in self.attempts if attempt.round == number]

    def until(self, number: int) -> Archive:
        """Return the archive without the attempts of later rounds, with the present results of the others."""
        return replace(self, attempts=[a for a in self.attempts if a.round <= number])

    def in_round(self, attempt: Attempt, number: int) -> float | None:
        """Return the mean fitness of an attempt or baseline over the seeds of a round; None if it has none."""
        values = [attempt.by_seed[seed] for seed in self.seeds.get(number, ()) if seed in attempt.by_seed]
        return math.fsum(values) / len(values) if values else None

    @property
    def by_name(self) -> dict[str, Attempt]:
        """The attempts, the baselines and ``untrained``."""
        return {attempt.name: attempt for attempt in [*self.attempts, *self.references]}


@lru_cache(maxsize=8)
def _merits(
    results: tuple[tuple[str, bool, tuple[tuple[int, float], ...]], ...], reference: str, bounds: tuple[float, float]
) -> Merits:
    candidates = {name for name, is_candidate, _ in results if is_candidate}
    return Merits({name: dict(by_seed) for name, _, by_seed in results}, candidates, reference, bounds)


def noted(fault: Fault | str | None, note: str) -> str:
    """Return a fault with its note in one line."""
    return f"{fault} ({note})" if fault and note else str(fault or note)


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt with the highest mean fitness, the earliest of equals; None if none has a fitness."""
    return max(_measured(attempts), key=lambda pair: pair[1], default=(None, 0.0))[0]


def _measured(attempts: Sequence[Attempt]) -> list[tuple[Attempt, float]]:
    return [(a, a.fitness) for a in attempts if a.fitness is not None and a.status == OK and math.isfinite(a.fitness)]


def difference(attempt: Attempt, other: Attempt) -> float | None:
    """Return the mean difference in fitness over the seeds that both have; None if there are none."""
    gaps = [fitness - other.by_seed[seed] for seed, fitness in attempt.by_seed.items() if seed in other.by_seed]
    return math.fsum(gaps) / len(gaps) if gaps else None


def compared(attempt: Attempt, other: Attempt, model: FitnessModel) -> Difference | None:
    """Return the difference in fitness with its interval, which needs two seeds in common; None without any."""
    mean = difference(attempt, other)
    if mean is None:
        return None
    shared = len(set(attempt.by_seed) & set(other.by_seed))
    modelled = shared > 1 and {attempt.name, other.name} <= set(model.names)
    return model.difference(attempt.name, other.name) if modelled else Difference(mean, seeds=shared)


class Proposer(Protocol):
    """Writes candidates. Equal archives, rounds and counts must give equal proposals, so that searches can resume."""

    def propose(self, archive: Archive, round: int, count: int) -> list[Proposal]:
        """Write ``count`` candidates for a round, named ``proposal_name(round, k)``."""
        ...

    def repair(self, archive: Archive, failures: Sequence[tuple[Proposal, Fault]]) -> list[Proposal | None]:
        """Return a replacement of the same name for each failed proposal.

        None if there was no request; without source, but with fault, if the request was in vain.
        """
        ...


def proposal_name(round: int, index: int) -> str:
    """Return the name of a proposal: ``r2_03`` for the fourth of the second round."""
    return f"r{round}_{index:02d}"


_FILE = TypeAdapter(Archive)


def write_archive(path: Path, archive: Archive) -> None:
    """Write archive.json atomically."""
    write_atomic(path, _FILE.dump_json(archive, indent=1).decode() + "\n")


def read_archive(path: Path) -> Archive:
    """Read archive.json.

    Raises:
        ValueError: if the file is not an archive; the message names it.
    """
    try:
        return _FILE.validate_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path}: not a search's archive: {error}") from error
