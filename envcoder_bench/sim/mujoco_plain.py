"""A robot's MJCF as one file with its assets, for MuJoCo without this package."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mujoco

from envcoder_bench.sim.mujoco_assets import check_copy, self_contained
from envcoder_bench.sim.mujoco_model import load_robot, set_options


class PlainModel(NamedTuple):
    """A model for MuJoCo alone.

    Attributes:
        xml: its MJCF.
        assets: the contents of the files that it names, by their paths relative to it.
    """

    xml: str
    assets: dict[str, bytes]


def plain_model(
    xml: str | Path,
    dt: float,
    substeps: int,
    effort: bool,
    stiffness: float | None = None,
    damping: float | None = None,
    options: Mapping[str, Any] | None = None,
    beside: Path | None = None,
) -> PlainModel:
    """Return the MJCF file ``xml`` as one text and its assets, for MuJoCo without this package.

    Its time step is ``dt / substeps``. An actuator's control is an effort, N m or N, if ``effort`` is True, and else a
    position target, rad or m. Sensors are left out. ``beside`` is the folder that the model is for, whose files of
    other contents keep their names. Other arguments and errors as of ``load_robot``.
    """
    robot = load_robot(xml, dt, substeps, stiffness, damping, options)
    spec = mujoco.MjSpec.from_file(str(xml))
    spec.option.timestep = dt / substeps
    set_options(spec, options or {})
    for sensor in list(spec.sensors):
        spec.delete(sensor)
    for actuator, kp, kd in zip(spec.actuators, robot.stiffness, robot.damping):
        actuator.gainprm[0] = 1.0 if effort else kp
        actuator.biastype = mujoco.mjtBias.mjBIAS_NONE if effort else mujoco.mjtBias.mjBIAS_AFFINE
        actuator.biasprm[:3] = (0.0, 0.0, 0.0) if effort else (0.0, -kp, -kd)
    model = spec.compile()
    try:
        text, assets = self_contained(spec.to_xml(), spec, Path(xml), beside)
        check_copy(model, text, assets)
    except ValueError as error:
        raise ValueError(f"{xml}: {error}") from error
    return PlainModel(text, assets)
