"""The task of a run: in full, and as a small simulation for checks."""

from envcoder_bench.run.spec import RunConfig
from envcoder_bench.tasks.base import Task
from envcoder_bench.tasks.registry import get_spec, make_task
from envcoder_bench.tasks.sim_task import SimTask

PROBE_ENVS = 64  # most environments of the small simulation on which functions are checked


def build_task(cfg: RunConfig, num_envs: int) -> Task:
    """Create the run's task with ``num_envs`` environments."""
    return make_task(cfg.task.name, cfg.task, num_envs, cfg.sim, cfg.device)


def build_probe(cfg: RunConfig) -> Task:
    """Create the run's task in a small simulation, which gives its contract and a real state.

    It is on the CPU if it can be: all simulators run the same model, and those of a GPU take long to compile.
    """
    if brings_its_simulation(cfg):
        return build_task(cfg, probe_envs(cfg))
    return make_task(cfg.task.name, cfg.task, probe_envs(cfg), "mujoco_cpu", "cpu")


def probe_envs(cfg: RunConfig) -> int:
    """Return the environments of a small simulation of the run's task."""
    return min(PROBE_ENVS, cfg.num_envs_per_candidate)


def brings_its_simulation(cfg: RunConfig) -> bool:
    """Return whether the run's task has a simulation of its own, as those of Isaac Gym have."""
    return not issubclass(get_spec(cfg.task.name, cfg.task).task_class, SimTask)
