"""Settings of the physics from the command line: integrator, physics steps and the solver's iterations."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from dataclasses import dataclass
from typing import Any

from envcoder_bench.sim.base import INTEGRATORS
from envcoder_bench.tasks.registry import get_spec
from envcoder_bench.tasks.sim_task import control_timing, engine_options

from .records import Record

FORM = "INTEGRATOR:STEPS[:ITERATIONS]"


@dataclass(frozen=True)
class Physics:
    """How the engine takes a control step; None stands for the task's own.

    Attributes:
        integrator: a name of ``INTEGRATORS``.
        substeps: the value of ``task.sim.substeps``.
        iterations: the most iterations of the solver.
    """

    integrator: str | None = None
    substeps: int | None = None
    iterations: int | None = None

    def overrides(self) -> list[str]:
        """Return it as ``key=value``."""
        values = {
            "sim.mujoco.integrator": self.integrator,
            "sim.substeps": self.substeps,
            "sim.mujoco.iterations": self.iterations,
        }
        return [f"task.{key}={value}" for key, value in values.items() if value is not None]


def parse_physics(word: str) -> Physics:
    """Read ``own`` or ``INTEGRATOR:STEPS[:ITERATIONS]``, such as ``discrete:2`` or ``implicitfast:4:10``."""
    if word == "own":
        return Physics()
    integrator, *numbers = word.split(":")
    if integrator not in INTEGRATORS or len(numbers) not in (1, 2) or not all(x.isdigit() and int(x) for x in numbers):
        names = ", ".join(INTEGRATORS)
        raise ArgumentTypeError(f"'{word}': write own, or {FORM} with one of {names} and numbers of at least 1")
    return Physics(integrator, *map(int, numbers))


def with_physics(args: Namespace, physics: Physics) -> Namespace:
    """Return the arguments of a measurement with overrides that set the physics."""
    return Namespace(**{**vars(args), "overrides": [*args.overrides, *physics.overrides()]})


def engine_model(cfg: Any) -> Any:
    """Return MuJoCo's model of a task, from the task's config; it belongs to no simulation."""
    from envcoder_bench.sim.mujoco_model import load_robot

    control = cfg.env.get("control", {})
    gains = control.get("stiffness"), control.get("damping")
    return load_robot(get_spec(cfg.name).model_path, *control_timing(cfg), *gains, engine_options(cfg)).mj_model


def describe_physics(cfg: Any, model: Any) -> Record:
    """Return a task's settings for a record; ``substeps`` is ``sim.substeps``."""
    import mujoco

    name = mujoco.mjtIntegrator(model.opt.integrator).name
    integrator = next(x for x in INTEGRATORS if f"mjINT_{x.upper()}" == name)
    about = {"integrator": integrator, "iterations": model.opt.iterations, "substeps": cfg.sim.substeps}
    return {**about, "physics_step_ms": 1000 * model.opt.timestep}


def finer_than(cfg: Any, factors: tuple[int, ...] = (2, 4, 8)) -> list[Physics]:
    """Return implicitfast with so many times the physics steps of a task's config."""
    return [Physics("implicitfast", factor * cfg.sim.substeps) for factor in factors]
