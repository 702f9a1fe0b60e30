"""What MuJoCo's model of a task of mjlab says of its sensors and actuators."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mujoco import mjtBias, mjtGain, mjtSensor, mjtTrn

_QUANTITIES = {
    mjtSensor.mjSENS_JOINTPOS: "dof_pos",
    mjtSensor.mjSENS_JOINTVEL: "dof_vel",
    mjtSensor.mjSENS_GYRO: "angular_velocity",
    mjtSensor.mjSENS_FRAMEANGVEL: "angular_velocity",
    mjtSensor.mjSENS_VELOCIMETER: "linear_velocity",
    mjtSensor.mjSENS_FRAMELINVEL: "linear_velocity",
    mjtSensor.mjSENS_FRAMEXAXIS: "orientation",
    mjtSensor.mjSENS_FRAMEYAXIS: "orientation",
    mjtSensor.mjSENS_FRAMEZAXIS: "orientation",
}


def quantity(model: Any, sensor: int) -> str:
    """Return what a sensor measures, in the stress grid's words; empty if it does not err."""
    return _QUANTITIES.get(mjtSensor(model.sensor_type[sensor]), "")


def effort_limits(model: Any, joints: Sequence[int]) -> np.ndarray:
    """Return the largest effort of each joint's actuator in the model, ``(joints,)``, N m or N; 0 without one."""
    efforts = np.zeros(len(joints))
    for k in range(model.nu):
        joint = int(model.actuator_trnid[k, 0])
        if model.actuator_trntype[k] == mjtTrn.mjTRN_JOINT and joint in joints:
            own = model.actuator_forcerange[k, 1] if model.actuator_forcelimited[k] else np.inf
            of_joint = model.jnt_actfrcrange[joint, 1] if model.jnt_actfrclimited[joint] else np.inf
            efforts[joints.index(joint)] = min(own, of_joint)
    return efforts


def linear_actuators(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return which actuators are linear, ``(nu,)``, and which of them are position drives.

    Their force is ``gain * ctrl + bias_pos * q + bias_vel * dq``.
    """
    linear = np.isin(model.actuator_gaintype, [mjtGain.mjGAIN_FIXED, mjtGain.mjGAIN_AFFINE])
    linear &= np.isin(model.actuator_biastype, [mjtBias.mjBIAS_NONE, mjtBias.mjBIAS_AFFINE])
    return linear, linear & (model.actuator_biasprm[:, 1:3] != 0.0).any(axis=1)
