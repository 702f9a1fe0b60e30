"""The same policies in other physics: half the step, other integrators, a more exact solver, the other simulator."""

from __future__ import annotations

from envcoder_bench.core.settings import merged, nested
from envcoder_bench.run.prepare.environments import at_half_step
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.tasks.spec import Can

INTEGRATORS = ("Euler", "implicitfast")
EXACT = {"sim.mujoco.iterations": 100, "sim.mujoco.ls_iterations": 50}  # MuJoCo's defaults; tasks have fewer
ELSEWHERE = {"mujoco_cpu": "mujoco_warp", "mujoco_warp": "mujoco_cpu"}


def other_physics(spec: RunSpec) -> dict[str, RunSpec]:
    """Return a run with each change of the physics that its task takes, by name."""
    keys, task = spec.task.config_keys, spec.config.task
    changes: dict[str, RunSpec] = {}

    def with_keys(values: dict[str, object]) -> RunSpec:
        return spec.changed(task=merged(task, nested(values)))

    if Can.HALF_STEP in spec.task.can:
        changes["half_step"] = at_half_step(spec)
    if "sim.mujoco.integrator" in keys:
        changes.update({name: with_keys({"sim.mujoco.integrator": name}) for name in INTEGRATORS})
        changes["exact_solver"] = with_keys(dict(EXACT))
        changes["other_simulator"] = spec.changed(sim=ELSEWHERE[spec.config.sim], device="cpu", compile_shapers=False)
    elif "sim.backend" in keys:
        if spec.config.device == "cpu":
            changes["other_simulator"] = with_keys({"sim.backend": "warp"})
        else:
            changes["other_simulator"] = spec.changed(device="cpu", compile_shapers=False)
    return changes
