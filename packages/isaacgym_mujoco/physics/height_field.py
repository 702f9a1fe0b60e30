"""Height fields in MuJoCo's models."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from typing import Any

import mujoco
import numpy as np

DEPTH = 1.0  # m, of the solid ground below the lowest point of a height field
MOST_FIELDS_AT_ONCE = 4  # that one geom can touch: where the corners of four meet


def add_height_field(
    spec: mujoco.MjSpec, name: str, heights: np.ndarray, spacing: tuple[float, float], corner: np.ndarray
) -> Any:
    """Add an hfield, parallel to the world's axes, to the world's body; return its geom.

    MuJoCo's rows are along y, its heights between 0 and 1 above the geom, which is at the centre of the field.

    Args:
        heights: ``(nx, ny)``, m; spacing: along x and y, m; corner: position of node ``[0, 0]`` at height 0.
    """
    lowest, highest = float(heights.min()), float(heights.max())
    relief = max(highest - lowest, 1e-3)
    nx, ny = heights.shape
    half = 0.5 * (nx - 1) * spacing[0], 0.5 * (ny - 1) * spacing[1]
    added = spec.add_hfield(name=name, nrow=ny, ncol=nx, size=[*half, relief, DEPTH])
    added.userdata = ((heights - lowest) / relief).T.ravel()
    geom = spec.worldbody.add_geom(name=name, type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname=name)
    geom.pos = np.asarray(corner) + np.array([*half, lowest])
    return geom
