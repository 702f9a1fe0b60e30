"""Whether ranks that hold over the last quarter of a training hold in one three times as long."""

from .ranks import generated
from .training import Study

TASKS = ("CartpoleSwingup", "Cartpole", "Anymal")


def quarters(study: Study) -> None:
    """Train the same candidates once, and evaluate them at many lengths in full episodes.

    A shorter run is the beginning of a longer one, so each evaluation but the first is the end of a run.
    """
    args = study.args
    for task in args.tasks or TASKS:
        about = {
            "kind": "quarters", "task": task, "envs": args.envs, "candidates": args.candidates,
            "iterations": args.iterations,
        }  # fmt: skip
        study.train(
            about, generated(task, args.candidates), args.seeds, args.first_seed, num_envs_per_candidate=args.envs,
            learning_iterations=args.iterations, save_state=False,
            **{
                "evaluation.points": args.points, "evaluation.num_envs": args.episodes,
                "evaluation.final_episodes": args.episodes, "evaluation.point_steps": None,
            },
        )  # fmt: skip
