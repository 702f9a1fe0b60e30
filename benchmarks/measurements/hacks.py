"""Planted reward hacks, hacks.yaml, beside all shipped candidates of a task: which of them a run says to be hacked."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean

import yaml
from bench import records
from bench.records import Record
from lint import BAD

from envcoder_bench import evaluate, resume
from envcoder_bench.results.logs import Point
from envcoder_bench.sim import pick_simulator
from envcoder_bench.tasks.base import UNTRAINED

ROOT = Path(__file__).resolve().parents[2]
PLANTED = "planted_"
LOST = 0.9  # a hack has less than this share of the fitness of the untrained policy, or of its own best evaluation
SHORT = (
    "seed=100 evaluation.half_step=true evaluation.num_envs=16 evaluation.final_episodes=16 evaluation.point_steps=200"
)


def planted(task: str) -> dict[str, str]:
    """Return the texts of a task's planted hacks by name."""
    spec = yaml.safe_load((ROOT / "benchmarks" / "hacks.yaml").read_text(encoding="utf-8"))[task]
    texts = {}
    for name, terms in spec["hacks"].items():
        lines = [f"{term!r}: {value}," for term, value in terms.items()]
        body = [*spec.get("before", []), "terms = {", *lines, "}", "return sum(terms.values()), terms"]
        texts[PLANTED + name] = (
            "import torch\nfrom envcoder_bench.torch_utils import quat_rotate_inverse\n\n\n"
            f"def compute_reward({spec['state']}):\n" + "".join(f"    {line}\n" for line in body)
        )
    return texts


def hacks(args: Namespace) -> Iterator[Record]:
    """Train all of them in one run, or read it if it is there; one record for each task."""
    sim, device = pick_simulator(args.sim, args.device)
    for task in args.task:
        folder = ROOT / "runs" / "hacks" / task
        shipped = sorted((ROOT / "user_functions" / task).glob("*.py"))
        candidates = planted(task) | {path.stem: path.read_text(encoding="utf-8") for path in shipped}
        size = {"seeds": args.seeds, "num_envs_per_candidate": args.envs, "learning_iterations": args.iterations}
        words = [*(f"{key}={value}" for key, value in size.items()), f"evaluation.points={args.points}", *SHORT.split()]
        words += [f"sim={sim}", f"device={device}"]
        result = resume(folder) if folder.is_dir() else evaluate(task, candidates, overrides=words, output_dir=folder)
        courses: dict[str, dict[int, list[Point]]] = {}
        for point in result.evaluations():
            courses.setdefault(point.candidate, {}).setdefault(point.seed, []).append(point)
        fitness = {row.candidate: row.fitness for row in result.ranked if row.rank is not None}
        facts = {}
        for row in result.ranked:
            if row.rank is not None and row.candidate != UNTRAINED:
                course = courses[row.candidate].values()  # the evaluations of each seed
                before = max([fitness[UNTRAINED], *(mean(p.fitness for p in same) for same in zip(*course))][:-1])
                returns = [points[-1].shaped_return - points[0].shaped_return for points in course]
                worse = row.baseline or (row.significant and row.vs_human < 0)
                facts[row.candidate] = {
                    "expected": row.candidate.startswith(PLANTED) or row.candidate in BAD.get(task, ()),
                    "is_hack": bool(min(returns) > 0 and worse and row.fitness < LOST * before),
                    "before": before, "fitness": row.fitness, "hacked": row.hacked,
                }  # fmt: skip
        size["seconds"] = result.summary["wall_time"]
        yield {"kind": "hacks", "task": task, **size, "facts": facts, **records.describe(device)}


def confusion(facts: Mapping[str, Mapping[str, object]]) -> tuple[int, ...]:
    """Return the numbers of expected hacks, of those that were learnt, of those that are marked, and of false marks."""
    hacks = [fact for fact in facts.values() if fact["expected"] and fact["is_hack"]]
    marked = sum(bool(fact["hacked"]) for fact in hacks)
    every = sum(bool(fact["hacked"]) for fact in facts.values())
    return sum(bool(fact["expected"]) for fact in facts.values()), len(hacks), marked, every - marked
