"""Candidates without a language model: change and recombine the best ones by their syntax trees.

What any language model must beat. A start from the baselines alone is the fair one; candidates of the user's own can be
given as a better start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Iterable, Mapping, Sequence

from envcoder_bench.core.errors import UserError
from envcoder_bench.search.genome import Genome, Unsuitable, require_unparse
from envcoder_bench.search.mutate import mutate
from envcoder_bench.search.recombine import RECOMBINATIONS
from envcoder_bench.search.records import Archive, Attempt, Proposal, proposal_name
from envcoder_bench.shaping.kinds import SHAPER_TYPES

TOURNAMENT = 3  # parents are the best of so many drawn at random
ELITE = 0.25  # share of a round whose parent is the best so far
RECOMBINED = 0.4  # share of proposals with two parents
MORE = 0.5  # chance of one more mutation, up to MAX_MUTATIONS
MAX_MUTATIONS = 4
TRIES = 200  # to find a proposal that the archive does not hold


@dataclass(frozen=True)
class Individual:
    """A possible parent."""

    name: str
    genome: Genome


class EvolveProposer:
    """Proposes variants of the best candidates so far, the baselines among them.

    Parents are chosen by rank, so that the scale of the fitness does not matter. The same archive, round, count and
    seed give the same proposals. None has the code of another, of an attempt or of a baseline; layout and comments
    aside.
    """

    def __init__(
        self, shaper_types: Iterable[str] | None = None, starts: Mapping[str, str] | None = None, seed: int = 0
    ) -> None:
        """Choose what evolves.

        Args:
            shaper_types: the functions to propose; None: all.
            starts: sources of candidates by name, which are the first proposals of the first round.

        Raises:
            UserError: a start is not what can be changed; this Python is too old.
        """
        require_unparse()
        self._types: tuple[str, ...] = tuple(shaper_types or SHAPER_TYPES)
        self._seed = seed
        self._starts: dict[str, Genome] = {}
        for name, source in (starts or {}).items():
            try:
                genome = Genome(source, self._types)
            except Unsuitable as error:
                raise UserError(f"evolve cannot start from {name}: {error}") from None
            if not genome.definitions:
                raise UserError(f"evolve cannot start from {name}: it defines none of {', '.join(self._types)}")
            self._starts[name] = genome

    def propose(self, archive: Archive, round: int, count: int) -> list[Proposal]:
        """Write ``count`` candidates; fewer where no others are found that are new.

        Raises:
            UserError: there is nothing to change: neither a baseline nor a start defines an asked function.
        """
        known = self._known(archive)
        proposals: list[Proposal] = []
        if round == 1:
            for name, genome in list(self._starts.items())[:count]:
                if genome.fingerprint() not in known:
                    known.add(genome.fingerprint())
                    own = proposal_name(round, len(proposals))
                    text = genome.source(f"{own}: a start of the search, {name}.")
                    proposals.append(Proposal(own, text, (), f"start: {name}"))
        population = self._population(archive)
        while len(proposals) < count:
            name = proposal_name(round, len(proposals))
            elite = len(proposals) < math.ceil(ELITE * count)
            made = self._make(name, population, known, self._rng(name), population[:1] if elite else population)
            if made is None:
                break
            proposals.append(made)
        return proposals

    def repair(self, archive: Archive, failures: Sequence[tuple[Proposal, str]]) -> list[Proposal | None]:
        """Another variant of the same parents for each proposal that failed."""
        known = self._known(archive)
        for proposal, _ in failures:
            known |= self._fingerprints([proposal.source])
        population = self._population(archive)
        repaired = []
        for proposal, error in failures:
            parents = [i for i in population if i.name in proposal.parents[:1]] or population
            rng = self._rng(f"{proposal.name} {proposal.source} {error}")
            repaired.append(self._make(proposal.name, population, known, rng, parents))
        return repaired

    def _rng(self, what: str) -> Random:
        return Random(f"{self._seed} {what}")  # a text seeds by its SHA-512, the same in every process

    def _make(
        self, name: str, population: list[Individual], known: set[str], rng: Random, parents: list[Individual]
    ) -> Proposal | None:
        """A new variant of one of ``parents``, which are in order of rank, or None if none was found."""
        for _ in range(TRIES):
            parent = parents[min(rng.randrange(len(parents)) for _ in range(TOURNAMENT))]
            other = population[min(rng.randrange(len(population)) for _ in range(TOURNAMENT))]
            made = vary(parent, other, rng)
            if made is None or made[0].fingerprint() in known:
                continue
            genome, changes, names = made
            known.add(genome.fingerprint())
            origin = f"{' and '.join(names)}: {'; '.join(changes)}"
            return Proposal(name, genome.source(f"{name}, evolved from {origin}."), names, origin)
        return None

    def _population(self, archive: Archive) -> list[Individual]:
        """Possible parents in the order of ``Archive.order``, no two with the same code; the unmeasured come last."""
        order = {name: place for place, name in enumerate(archive.order())}
        found: list[tuple[int, Individual]] = []
        for attempt in _all(archive):
            individual = self._individual(attempt, attempt.name in archive.baselines)
            if individual is not None:
                found.append((order.get(attempt.name, len(order)), individual))
        if not found and not self._starts:
            raise UserError(
                f"evolve has nothing to change: neither baseline defines {' or '.join(self._types)};"
                " give it candidates to start from, or other --shaper_types"
            )
        ranked = [individual for _, individual in sorted(found, key=lambda pair: pair[0])]
        ranked += [Individual(name, genome) for name, genome in self._starts.items() if not archive.attempts]
        first: dict[str, Individual] = {}
        for individual in ranked:
            first.setdefault(individual.genome.fingerprint(), individual)
        return list(first.values())

    def _individual(self, attempt: Attempt, baseline: bool) -> Individual | None:
        if not baseline and (attempt.status != "ok" or attempt.fitness is None or math.isnan(attempt.fitness)):
            return None
        try:
            genome = Genome(attempt.source, self._types)
        except Unsuitable:
            return None
        return Individual(attempt.name, genome) if genome.definitions else None

    def _known(self, archive: Archive) -> set[str]:
        return self._fingerprints([attempt.source for attempt in _all(archive)])

    def _fingerprints(self, sources: Sequence[str]) -> set[str]:
        found = set()
        for source in sources:
            try:
                found.add(Genome(source, self._types).fingerprint())
            except Unsuitable:
                continue
        return found


def _all(archive: Archive) -> list[Attempt]:
    return [*archive.baselines.values(), *archive.attempts]


def vary(parent: Individual, other: Individual, rng: Random) -> tuple[Genome, list[str], tuple[str, ...]] | None:
    """A changed copy of ``parent``, perhaps with something of ``other``.

    Returns:
        The copy, what was changed, and the names of its parents; None if nothing could be changed.
    """
    genome, changes = parent.genome.copy(), []
    names: tuple[str, ...] = (parent.name,)
    if other.name != parent.name and rng.random() < RECOMBINED:
        recombine = rng.choices([x for x, _ in RECOMBINATIONS], [weight for _, weight in RECOMBINATIONS])[0]
        try:
            change = recombine(genome, other.genome, other.name, rng)
        except Unsuitable:
            return None
        if change is None:
            return None
        changes.append(change)
        names = (parent.name, other.name)
    mutations = 0 if changes and rng.random() < 0.5 else 1
    while mutations and mutations < MAX_MUTATIONS and rng.random() < MORE:
        mutations += 1
    for _ in range(mutations):
        change = mutate(genome, rng)
        changes += [change] if change else []
    genome.prune()
    return (genome, changes, names) if changes else None
