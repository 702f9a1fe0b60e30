"""An evolutionary proposer, which mutates and recombines the best candidates without a language model.

It is the reference for language models. For a fair comparison it starts from the baselines alone; users can give
candidates for a better start. Without selection (``--llm random``) it is the reference for evolution itself: the same
changes, but of parents that are drawn with equal probability.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from envcoder_bench.core.errors import UserError
from envcoder_bench.report.results import OK
from envcoder_bench.search.genome import Genome, UnsupportedCode
from envcoder_bench.search.records import Archive, Attempt, Proposal, proposal_name
from envcoder_bench.search.terms import Quantity, quantities
from envcoder_bench.search.vary import add_term, mutate, recombine
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.tasks.base import BASELINE_FILES
from envcoder_bench.tasks.contract import Key

TOURNAMENT = 3  # parents are the best of this many drawn at random
ELITE = 0.25  # share of a round whose parent is the best so far
RECOMBINED = 0.4  # share of proposals with two parents
NEW_TERM = 0.1  # share of proposals whose reward gets a new term; others change and combine what is there
MORE = 0.5  # probability of one more mutation, up to MAX_MUTATIONS
MAX_MUTATIONS = 4
TRIES = 200  # to find a proposal that is not in the archive


class EvolveProposer:
    """Proposes variants of the best candidates so far, including the baselines.

    Parents are chosen by rank, so that the scale of the fitness does not matter. The same archive, round, count and
    seed give the same proposals. Apart from layout and comments, the code of a proposal differs from all others,
    attempts and baselines.
    """

    def __init__(
        self,
        shaper_types: Iterable[str] | None = None,
        starts: Mapping[str, str] | None = None,
        seed: int = 0,
        baselines: Sequence[str] = BASELINE_FILES,
        selection: bool = True,
        state: Mapping[str, Key] | None = None,
    ) -> None:
        """Create a proposer.

        Args:
            shaper_types: the functions to propose; None for all.
            starts: sources by name, which are the first proposals of the first round.
            seed: seed of the random choices.
            baselines: names of the baselines that are parents.
            selection: whether better candidates are more often parents; otherwise all that have a fitness are equally.
            state: keys of the task's state, of which rewards get new terms; None: rewards get none.

        Raises:
            UserError: if a start has code that cannot be changed.
        """
        self._types: tuple[str, ...] = tuple(shaper_types or SHAPER_TYPES)
        self._seed, self._baselines, self._selection = seed, tuple(baselines), selection
        self._quantities = quantities(state) if state else []
        self._starts: dict[str, Genome] = {}
        for name, source in (starts or {}).items():
            try:
                genome = Genome(source, self._types)
            except UnsupportedCode as error:
                raise UserError(f"evolve cannot start from {name}: {error}") from None
            if not genome.shapers():
                raise UserError(f"evolve cannot start from {name}: it defines none of {', '.join(self._types)}")
            self._starts[name] = genome

    def propose(self, archive: Archive, round: int, count: int) -> list[Proposal]:
        """Write ``count`` candidates, or fewer if no further new ones are found.

        Raises:
            UserError: if neither a baseline nor a start defines any of the functions to propose.
        """
        known = self._fingerprints(_all(archive))
        proposals: list[Proposal] = []
        for name, genome in list(self._starts.items())[:count] if round == 1 else []:
            if genome.fingerprint() not in known:
                known.add(genome.fingerprint())
                proposal = proposal_name(round, len(proposals))
                text = genome.with_docstring(f"{proposal}: a start of the search, {name}.")
                proposals.append(Proposal(proposal, text, (), f"start: {name}"))
        population = self._population(archive)
        names = list(population)
        while len(proposals) < count:
            name = proposal_name(round, len(proposals))
            elite = self._selection and len(proposals) < math.ceil(ELITE * count)
            proposal = self._make(name, population, names[:1] if elite else names, known, self._rng(name))
            if proposal is None:
                break
            proposals.append(proposal)
        return proposals

    def repair(self, archive: Archive, failures: Sequence[tuple[Proposal, str]]) -> list[Proposal | None]:
        """Return another variant of the same parents for each failed proposal."""
        known = self._fingerprints([*_all(archive), *(proposal for proposal, _ in failures)])
        population = self._population(archive)
        repaired = []
        for proposal, error in failures:
            parents = [name for name in proposal.parents[:1] if name in population] or list(population)
            rng = self._rng(f"{proposal.name} {proposal.source} {error}")
            repaired.append(self._make(proposal.name, population, parents, known, rng))
        return repaired

    def _rng(self, label: str) -> Random:
        return Random(f"{self._seed} {label}")  # seeding with a string is deterministic over processes

    def _make(
        self, name: str, population: Mapping[str, Genome], parents: Sequence[str], known: set[str], rng: Random
    ) -> Proposal | None:
        """Return a new variant of one of ``parents``, which are in order of rank; None if none is found."""
        every, drawn = list(population), TOURNAMENT if self._selection else 1
        for _ in range(TRIES):
            parent, other = (names[min(rng.randrange(len(names)) for _ in range(drawn))] for names in (parents, every))
            try:
                genome, changes, used = _vary(population, parent, other, rng, self._quantities)
            except UnsupportedCode:
                continue
            if not changes or genome.fingerprint() in known:
                continue
            known.add(genome.fingerprint())
            origin = f"{' and '.join(used)}: {'; '.join(changes)}"
            return Proposal(name, genome.with_docstring(f"{name}, evolved from {origin}."), used, origin)
        return None

    def _population(self, archive: Archive) -> dict[str, Genome]:
        """Return possible parents with different code in the order of ``Archive.order``, unmeasured ones last."""
        order = {name: rank for rank, name in enumerate(archive.order())}
        measured = [
            a for a in archive.attempts if a.status == OK and a.fitness is not None and not math.isnan(a.fitness)
        ]
        baselines = [archive.baselines[name] for name in self._baselines if name in archive.baselines]
        ranked = sorted([*baselines, *measured], key=lambda a: order.get(a.name, len(order)))
        found = {a.name: genome for a in ranked if (genome := self._genome(a)) is not None}
        if not found and not self._starts:
            raise UserError(
                f"evolve has nothing to change: neither baseline defines {' or '.join(self._types)};"
                " give it candidates to start from, or other --shaper_types"
            )
        found.update(self._starts if not archive.attempts or not found else {})
        first: dict[str, str] = {}
        for name, genome in found.items():
            first.setdefault(genome.fingerprint(), name)
        return {name: found[name] for name in first.values()}

    def _genome(self, written: Attempt | Proposal) -> Genome | None:
        """Return the genome of a candidate; None if it has nothing that can be changed."""
        try:
            genome = Genome(written.source, self._types)
        except UnsupportedCode:
            return None
        return genome if genome.shapers() else None

    def _fingerprints(self, written: Sequence[Attempt | Proposal]) -> set[str]:
        return {genome.fingerprint() for genome in map(self._genome, written) if genome is not None}


def _all(archive: Archive) -> list[Attempt]:
    return [*archive.baselines.values(), *archive.attempts]


def _vary(
    population: Mapping[str, Genome], parent: str, other: str, rng: Random, quantities: Sequence[Quantity]
) -> tuple[Genome, list[str], tuple[str, ...]]:
    """Return a changed copy of a parent, perhaps combined with another, its changes, and the names of its parents.

    A new term is the first of the mutations. Raises UnsupportedCode if a change cannot be applied.
    """
    genome, changes, names = population[parent], [], (parent,)
    if other != parent and rng.random() < RECOMBINED:
        change = recombine(genome, population[other], other, rng)
        if change is None:
            return genome, [], names
        genome, changes, names = change[0], [change[1]], (parent, other)
    mutations = 0 if changes and rng.random() < 0.5 else 1
    while mutations and mutations < MAX_MUTATIONS and rng.random() < MORE:
        mutations += 1
    new_term = bool(quantities) and rng.random() < NEW_TERM
    for number in range(mutations):
        change = add_term(genome, quantities, rng) if new_term and number == 0 else mutate(genome, rng)
        if change is not None:
            genome = change[0]
            changes.append(change[1])
    return genome.pruned(population[parent]), changes, names
