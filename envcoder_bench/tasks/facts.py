"""The numbers of a task as a config builds it: constants, default state, timing, the names of joints and bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from envcoder_bench.tasks.registry import make_task
from envcoder_bench.tasks.sim_task import SimTask, control_timing, read


@dataclass(frozen=True)
class Facts:
    """A task's numbers, as text where they are to be read.

    Attributes:
        constants: values of the keys of ``state_dict`` without an environment axis.
        default_state: where episodes begin as far as ``compute_initial_state`` does not say otherwise.
        drives: gains of the position drives that the config sets, e.g. ``stiffness: 85``.
        joints, bodies, sensors, sites: names, in the order of the state's axes.
        dt, substeps, max_episode_length: seconds of a control step, its physics steps, and control steps of an episode.
    """

    constants: dict[str, str]
    default_state: dict[str, str]
    drives: dict[str, str]
    joints: tuple[str, ...]
    bodies: tuple[str, ...]
    sensors: tuple[str, ...]
    sites: tuple[str, ...]
    dt: float
    substeps: int
    max_episode_length: int


def task_facts(cfg: Mapping[str, Any]) -> Facts:
    """Build a task once, and read its numbers.

    Args:
        cfg: its YAML, with the user's overrides: what it trains with.

    Raises:
        ValueError: as ``make_task``.
    """
    # one environment on the CPU, whatever trains: all simulators run the same model
    task = make_task(cfg["name"], cfg, 1, "mujoco_cpu", "cpu")
    assert isinstance(task, SimTask)
    control = read(cfg, "env").get("control", {})
    dt, substeps = control_timing(cfg)
    return Facts(
        constants={key: shown(x.tolist()) for key, x in task.constants.items()},
        default_state={key: shown(x[0].tolist()) for key, x in task.default_state.items()},
        drives={key: shown(control[key]) for key in ("stiffness", "damping") if key in control},
        joints=task.dof_names,
        bodies=task.body_names,
        sensors=task.sensor_names,
        sites=task.site_names,
        dt=dt,
        substeps=substeps,
        max_episode_length=task.max_episode_length,
    )


def shown(value: Any) -> str:
    """A number, or a list of them, with five digits: ``0.0166``, ``[3, 6, 9, 12]``, ``16 times 0.5``."""
    if not isinstance(value, (list, tuple)):
        return f"{value:.5g}" if isinstance(value, float) else str(value)
    items: list[str] = [shown(x) for x in value]
    if len(items) > 3 and len(set(items)) == 1:
        return f"{len(items)} times {items[0]}"
    return f"[{', '.join(items)}]"
