"""Whether a cheap ranking of generated candidates is that of a reference with more environments and other seeds."""

from collections.abc import Mapping
from types import MappingProxyType

from bench.candidates import make_candidates

from envcoder_bench.run.prepare.run_files import baseline_sources
from envcoder_bench.search.archive import Archive, Attempt
from envcoder_bench.search.evolve import EvolveProposer
from envcoder_bench.shaping.kinds import DOF_TARGET, OBSERVATION, REWARD, TERMINAL, TORQUE
from envcoder_bench.sources.registry import find_spec

from .training import Study

TASKS = ("Anymal", "Ant", "AllegroHand")
VARIED = (REWARD, OBSERVATION, TORQUE, DOF_TARGET, TERMINAL)
REFERENCE_SEED = 1000  # the first seed of the reference, which no cheap setting has
QUARTERS = 4  # evaluations: after a quarter, a half, three quarters and all of the iterations
GENERATIONS = 5


def generated(task: str, count: int) -> dict[str, str]:
    """Return candidates by name: for Anymal those of the benchmarks' pool, else random mutations of both baselines.

    Mutations are those of ``--llm random``, in generations, without any training.
    """
    if task == "Anymal":
        return {source.name: source.source for source in make_candidates(count)}
    return mutated(task, count, EvolveProposer(VARIED, selection=False))


def mutated(
    task: str, count: int, proposer: EvolveProposer, first: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return candidates by name: ``first``, then mutations of them and of both baselines, in generations."""
    archive = Archive(
        [Attempt(name, 0, text, fitness=0.0) for name, text in first.items()],
        {b.name: Attempt(b.name, 0, b.source, fitness=0.0) for b in baseline_sources(find_spec(task))},
    )
    for generation in range(1, GENERATIONS + 1):
        size = -(-(count - len(first)) // GENERATIONS)
        for p in proposer.propose(archive, generation, size):
            archive.attempts.append(Attempt(p.name, generation, p.source, p.parents, p.origin, fitness=0.0))
    return {attempt.name: attempt.source for attempt in archive.attempts[:count]}


def ranks(study: Study) -> None:
    """Train the same candidates with each number of environments, and as a reference with seeds of its own."""
    args = study.args
    for task in args.tasks or TASKS:
        candidates = generated(task, args.candidates)
        about = {"kind": "ranks", "task": task, "candidates": args.candidates, "iterations": args.iterations}
        evaluation = {
            "evaluation.points": QUARTERS, "evaluation.final_episodes": args.episodes,
            "evaluation.point_steps": None, "learning_iterations": args.iterations, "save_state": False,
        }  # fmt: skip
        for role, seeds, first, sizes in (
            ("cheap", args.seeds, 0, args.envs),
            ("reference", args.reference_seeds, REFERENCE_SEED, [args.reference_envs]),
        ):
            if args.role not in (role, "both"):
                continue
            for envs in sizes:
                facts = {**about, "role": role, "envs": envs}
                study.train(facts, candidates, seeds, first, num_envs_per_candidate=envs, **evaluation)
