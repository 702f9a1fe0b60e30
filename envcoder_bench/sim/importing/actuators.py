"""Actuators of any MJCF as the drives that ``load_robot`` accepts: one motor or position drive per joint, gear 1."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

_HINGE_OR_SLIDE = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_OF_JOINT = (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT))
_OF_TENDON, _WRAPS_JOINT = int(mujoco.mjtTrn.mjTRN_TENDON), int(mujoco.mjtWrap.mjWRAP_JOINT)
_FIXED_GAIN, _AFFINE_GAIN = int(mujoco.mjtGain.mjGAIN_FIXED), int(mujoco.mjtGain.mjGAIN_AFFINE)
_NO_BIAS, _AFFINE_BIAS = int(mujoco.mjtBias.mjBIAS_NONE), int(mujoco.mjtBias.mjBIAS_AFFINE)

MOST_EFFORT, NO_EFFORT = 1e6, 10.0  # N m or N: the most that a file can mean, and the limit where it means none


@dataclass(frozen=True)
class Drive:
    """The drive of a joint: limits of its effort, N m or N, and gains of its position control, 0 for a motor."""

    low: float
    high: float
    kp: float = 0.0
    kd: float = 0.0


def replace_actuators(spec: Any, model: mujoco.MjModel, efforts: Mapping[str, float]) -> list[str]:
    """Replace the actuators of ``spec`` by plain drives, in the order of the joints; return what changed.

    Args:
        model: ``spec``, compiled: gains that depend on inertia are computed in it.
        efforts: of joints that have no actuator in the file, as in URDF: the greatest effort of each, N m or N.
    """
    changes: list[str] = []
    drives: dict[str, Drive] = {}
    for a in range(model.nactuator):
        name = model.actuator(a).name or f"number {a}"
        joints = dict(_joints(model, a))
        if not joints or model.actuator_ctrlnum[a] > 1 or model.actuator_gaintype[a] not in (_FIXED_GAIN, _AFFINE_GAIN):
            changes.append(f"actuator {name}: left out, because it drives no hinge or slide, or is a muscle")
            continue
        if model.actuator_trntype[a] == _OF_TENDON:
            changes.append(
                f"actuator {name}: it drove a tendon, now a motor at each of its joints, {', '.join(joints)}"
            )
        for joint, gear in joints.items():
            if joint in drives:
                changes.append(f"actuator {name}: left out, because joint {joint} has another one")
                continue
            drives[joint], change = _drive(model, a, joint, gear)
            changes += [f"actuator {name}: {change}"] * bool(change and model.actuator_trntype[a] != _OF_TENDON)
    for joint, effort in efforts.items():
        if effort > MOST_EFFORT:  # as readers of URDF fill in
            changes.append(f"joint {joint}: it states no effort; its forcerange is now {NO_EFFORT:g}")
        if effort > 0:
            limit = effort if effort <= MOST_EFFORT else NO_EFFORT
            drives[joint] = Drive(-limit, limit)
    for actuator in list(spec.actuators):
        spec.delete(actuator)
    for j in range(model.njnt):
        joint = model.joint(j).name
        if joint in drives:
            _add(spec, joint, drives[joint])
    return changes


def _joints(model: mujoco.MjModel, actuator: int) -> Iterator[tuple[str, float]]:
    """Yield the hinges and slides that an actuator drives, and the effort at each for a force of 1."""
    gear = float(model.actuator_gear[model.actuator_outadr[actuator], 0])
    target = int(model.actuator_trnid[actuator, 0])
    joints: list[tuple[int, float]] = []
    if model.actuator_trntype[actuator] in _OF_JOINT:
        joints = [(target, gear)]
    elif model.actuator_trntype[actuator] == _OF_TENDON:
        first = int(model.tendon_adr[target])
        wraps = range(first, first + int(model.tendon_num[target]))
        if all(model.wrap_type[w] == _WRAPS_JOINT for w in wraps):
            joints = [(int(model.wrap_objid[w]), gear * float(model.wrap_prm[w])) for w in wraps]
    for joint, factor in joints:
        if model.jnt_type[joint] in _HINGE_OR_SLIDE and factor != 0:
            yield model.joint(joint).name, factor


def _drive(model: mujoco.MjModel, a: int, joint: str, gear: float) -> tuple[Drive, str]:
    """Return the drive of a joint in place of an actuator, and what is not as it was, if anything."""
    gain, bias = float(model.actuator_gainprm[a, 0]), model.actuator_biasprm[a]
    affine = model.actuator_biastype[a] == _AFFINE_BIAS
    is_position = affine and gain > 0 and bias[0] == 0 and np.isclose(bias[1], -gain)
    is_position = is_position and model.actuator_trntype[a] in _OF_JOINT
    limits = [gear * model.actuator_forcerange[a]] if model.actuator_forcelimited[a] else []
    change = ""
    c = model.actuator_ctrladr[a]
    if model.actuator_ctrllimited[c] and not (is_position and limits):
        control = model.actuator_ctrlrange[c]
        # a position drive at one end of its range with its target at the other
        limits.append(gear * gain * (np.ptp(control) * np.array([-1, 1]) if is_position else control))
    j = model.joint(joint).id
    if model.jnt_actfrclimited[j]:
        limits.append(model.jnt_actfrcrange[j])
    if not limits:
        limits = [abs(gear * gain) * np.array([-1.0, 1.0])]
        change = f"it had no limits; its forcerange is now {limits[0][1]:g}"
    ends = np.array([np.sort(limit) for limit in limits])
    low, high = float(ends[:, 0].max()), float(ends[:, 1].min())
    if is_position:
        return Drive(low, high, gain * gear**2, -float(bias[2]) * gear**2), change
    if affine and np.any(bias[:3] != 0):
        change = f"it was a servo; it is now a motor with a forcerange of {low:g} to {high:g}"
    elif int(model.actuator_dyntype[a]) != int(mujoco.mjtDyn.mjDYN_NONE):
        change = "its activation dynamics are left out"
    return Drive(low, high), change


def _add(spec: Any, joint: str, drive: Drive) -> None:
    """Add a drive to the specification."""
    actuator = spec.add_actuator(name=joint, target=joint, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    # all that a default class of the file can set
    actuator.gear = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    actuator.actlimited = mujoco.mjtLimited.mjLIMITED_FALSE
    actuator.gaintype, actuator.dyntype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtDyn.mjDYN_NONE
    actuator.gainprm[0] = drive.kp or 1.0
    actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE if drive.kp else mujoco.mjtBias.mjBIAS_NONE
    actuator.biasprm[:3] = (0.0, -drive.kp, -drive.kd)
    actuator.forcelimited, actuator.ctrllimited = mujoco.mjtLimited.mjLIMITED_TRUE, mujoco.mjtLimited.mjLIMITED_FALSE
    actuator.forcerange = [drive.low, drive.high]
