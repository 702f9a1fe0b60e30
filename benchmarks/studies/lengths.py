"""Both baselines, and the human one with the sparse reward, until they stop improving."""

from pages.learning_tables import SPARSE_REWARD

from envcoder_bench.tasks.registry import task_names

from .components import variants
from .training import Study


def lengths(study: Study) -> None:
    """Train each task's baselines with equal env-steps, with many evaluations."""
    args = study.args
    for task in args.tasks or task_names():
        text = variants(task)[SPARSE_REWARD]
        assert text is not None
        about = {"kind": "lengths", "task": task, "envs": args.envs, "iterations": args.iterations}
        settings = {"num_envs_per_candidate": args.envs, "learning_iterations": args.iterations}
        evaluation = {"evaluation.points": args.points, "evaluation.final_episodes": args.episodes}
        evaluation["evaluation.point_steps"] = None  # full episodes, comparable with the last evaluation's
        study.train(about, {SPARSE_REWARD: text}, args.seeds, save_state=False, **settings, **evaluation)
