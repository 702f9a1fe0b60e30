"""Searches with equal budgets: evolution, random changes without selection, and the human baseline."""

from __future__ import annotations

from bench import records

from envcoder_bench.run.policies import open_run
from envcoder_bench.search.folder import SearchFolder
from envcoder_bench.search.launch import resume, start
from envcoder_bench.search.screen import View
from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.tasks.base import HUMAN, UNSHAPED

from .components import variants
from .lengths import SPARSE_REWARD
from .training import Study, folder_name

TASKS = ("Ant", "Humanoid", "Anymal", "AllegroHand")
APART = 1000  # seeds between two searches
REFERENCE_SEED = 500_000
BEST = "best"


def evolve(study: Study) -> None:
    """Run all searches of all tasks and methods, and train the sparse and the human reward with seeds of their own."""
    args = study.args
    for task in args.tasks or TASKS:
        sizes = {"num_envs_per_candidate": args.envs, "learning_iterations": args.iterations}
        about = {"kind": "evolve", "task": task, "envs": args.envs, "iterations": args.iterations}
        text = variants(task)[SPARSE_REWARD]
        assert text is not None
        evaluation = {"evaluation.points": 1, "evaluation.final_episodes": args.episodes}
        reference = {**about, "role": "reference"}
        settings = {**sizes, **evaluation, "save_state": False}
        study.train(reference, {SPARSE_REWARD: text}, args.final_seeds, REFERENCE_SEED, **settings)
        for k in range(args.searches):  # one search of every method, then the next: what was measured is balanced
            for method in args.methods:
                for kinds in args.kinds:
                    _search(study, {**about, "role": "search", "method": method, "kinds": kinds, "search": k}, sizes)


def _search(study: Study, about: records.Record, sizes: dict[str, int]) -> None:
    args = study.args
    about = {**about, "rounds": args.rounds, "per_round": args.per_round, "seeds": args.final_seeds}
    about["overrides"] = list(args.overrides)
    if study.recorded(about) or study.stop.by is not None:
        return
    path = args.work / folder_name(about)
    print(f"{path.name} ...", flush=True)
    view = View(stop=study.stop)
    if (path / "config.yaml").is_file():
        result = resume(path, view)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        words = study.overrides(seed=APART * (about["search"] + 1), **sizes)
        words += [f"num_iters={args.rounds}", f"shapers_per_iter={args.per_round}", f"final_seeds={args.final_seeds}"]
        words += [f"parents=[{UNSHAPED}]", "evaluation.points=1", f"final_episodes={args.episodes}"]
        words += [f"evaluation.final_episodes={args.episodes}"]
        words += [f"shaper_types=[{REWARD}]"] if about["kinds"] == "reward" else []
        result = start(about["task"], about["method"], overrides=words, output_dir=path, view=view)
    if result.stopped is not None or not result.best:
        return
    folder = SearchFolder(path)
    run = open_run(folder.final)
    names = {result.best: BEST, HUMAN: HUMAN, UNSHAPED: UNSHAPED}
    fitness = {
        shown: [row.fitness if row.measured else None for row in run.rows if row.candidate == name]
        for name, shown in names.items()
    }
    attempts = folder.read_archive().attempts
    made = {"evaluations": sum(bool(attempt.by_seed) for attempt in attempts), "candidates": len(attempts)}
    study.add({**about, "fitness": fitness, **made, "complete": True, "last": True, **records.describe(run.cfg.device)})
