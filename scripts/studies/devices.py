"""The same groups on several devices, alone and among others: how far apart they end, in units of the seeds' spread."""

from __future__ import annotations

from bench import records

from envcoder_bench.core.errors import user_input
from envcoder_bench.sim import pick_simulator

from .ranks import generated
from .training import Study


def devices(study: Study) -> None:
    """Train both baselines on this device, with each number of neighbours, which are groups."""
    args = study.args
    with user_input():
        _, device = pick_simulator(args.sim or "auto", args.device or "auto")
    for task in args.tasks or ["Anymal"]:
        for neighbours in args.neighbours:
            about = {
                "kind": "devices", "task": task, "envs": args.envs, "iterations": args.iterations,
                "neighbours": neighbours, "on": records.describe(device)["label"],
            }  # fmt: skip
            settings = {"num_envs_per_candidate": args.envs, "learning_iterations": args.iterations}
            evaluation = {"evaluation.points": args.points, "evaluation.final_episodes": args.episodes}
            # a run needs a candidate: that of no neighbours is one more
            candidates = generated(task, max(1, round(neighbours / args.seeds)))
            study.train(about, candidates, args.seeds, save_state=False, **settings, **evaluation)
