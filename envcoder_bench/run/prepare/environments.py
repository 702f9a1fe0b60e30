"""The environments of a run: its task in full, a small simulation of it for checks, and the groups of candidates."""

from collections.abc import Sequence

from envcoder_bench.core.groups import GroupLayout
from envcoder_bench.core.settings import merged, nested, select
from envcoder_bench.env.grouped_vec_task import GroupedVecTask
from envcoder_bench.run.spec import RunConfig, RunSpec
from envcoder_bench.shaping.contract import Shaping
from envcoder_bench.tasks.base import Task
from envcoder_bench.tasks.spec import Can

PROBE_ENVS = 64  # most environments of the small simulation on which functions are checked


def build_env(spec: RunSpec, shapings: Sequence[Shaping], seeds: Sequence[int], num_envs: int) -> GroupedVecTask:
    """Create the environment of groups with these shapings and seeds, ``num_envs`` environments each."""
    layout = GroupLayout(len(shapings), num_envs)
    return GroupedVecTask(build_task(spec, layout.num_envs), layout, shapings, seeds)


def at_half_step(spec: RunSpec) -> RunSpec:
    """Return a run with half the physics step, and the same control step."""
    task = spec.config.task
    return spec.changed(task=merged(task, nested({"sim.substeps": 2 * select(task, "sim.substeps")})))


def build_task(spec: RunSpec, num_envs: int) -> Task:
    """Create the run's task with ``num_envs`` environments."""
    cfg = spec.config
    return spec.task.make(cfg.task, num_envs, cfg.sim, cfg.device)


def build_probe(spec: RunSpec) -> Task:
    """Create the run's task in a small simulation, which gives its contract and a real state.

    It is on the CPU if it can be: all simulators run the same model, and those of a GPU take long to compile.
    """
    spec = in_small_simulation(spec)
    return build_task(spec, probe_envs(spec.config))


def in_small_simulation(spec: RunSpec) -> RunSpec:
    """Return a run on the CPU, if its task shows the same state there."""
    return spec.changed(sim="mujoco_cpu", device="cpu") if Can.PROBE_ON_CPU in spec.task.can else spec


def probe_envs(cfg: RunConfig) -> int:
    """Return the environments of a small simulation of the run's task."""
    return min(PROBE_ENVS, cfg.num_envs_per_candidate)
