"""The same policies in other physics: half the step, other integrators, a more exact solver, the other simulator."""

from __future__ import annotations

from envcoder_bench.core.settings import merged, nested, select
from envcoder_bench.run.prepare.environments import at_half_step
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.sim.mujoco_model import solver_limits
from envcoder_bench.tasks.spec import Can

INTEGRATORS = ("Euler", "implicitfast")
EXACT = {"iterations": 100, "ls_iterations": 50}  # MuJoCo's defaults; shipped tasks have fewer
ELSEWHERE = {"mujoco_cpu": "mujoco_warp", "mujoco_warp": "mujoco_cpu"}


def other_physics(spec: RunSpec) -> tuple[dict[str, RunSpec], list[str]]:
    """Return a run with each change of the physics that its task takes, by name, and lines on what it does not take."""
    keys, task = spec.task.config_keys, spec.config.task
    changes: dict[str, RunSpec] = {}
    notes: list[str] = []

    def with_keys(values: dict[str, object]) -> RunSpec:
        return spec.changed(task=merged(task, nested(values)))

    if Can.HALF_STEP in spec.task.can:
        changes["half_step"] = at_half_step(spec)
    if "sim.mujoco.integrator" in keys:
        changes.update({name: with_keys({"sim.mujoco.integrator": name}) for name in INTEGRATORS})
        changes["exact_solver"] = with_keys(_exact(spec))
        changes["other_simulator"] = spec.changed(sim=ELSEWHERE[spec.config.sim], device="cpu", compile_shapers=False)
    elif Can.BOTH_BACKENDS in spec.task.can:
        in_warp = spec.config.device != "cpu" or select(task, "sim.backend") == "warp"
        other = with_keys({"sim.backend": "mujoco" if in_warp else "warp"})
        changes["other_simulator"] = other.changed(device="cpu", compile_shapers=False)
    elif "sim.backend" in keys:
        notes.append("other simulator: only one of MuJoCo and MuJoCo Warp simulates this task with the installed mjlab")
    if not changes and not notes:
        notes.append("other physics: the step, the integrator, the solver and the simulator of this task are fixed")
    return changes, notes


def _exact(spec: RunSpec) -> dict[str, object]:
    """Return limits of the solver, never below those of the run or of the model's file."""
    of_file = {} if spec.task.model_path is None else solver_limits(spec.task.model_path)
    keys = {name: f"sim.mujoco.{name}" for name in EXACT}
    of_run = {name: select(spec.config.task, key) or of_file.get(name, 0) for name, key in keys.items()}
    return {key: max(of_run[name], EXACT[name]) for name, key in keys.items()}
