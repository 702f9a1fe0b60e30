"""Both baselines, and the human one with the sparse reward, until they stop improving."""

from pages.learning_tables import SPARSE_REWARD

from envcoder_bench.tasks.registry import task_names

from .components import train, variants
from .training import Study


def lengths(study: Study) -> None:
    """Train each task's baselines with equal env-steps, with many evaluations."""
    for task in study.args.tasks or task_names():
        train(study, "lengths", task, {SPARSE_REWARD: str(variants(task)[SPARSE_REWARD])})
