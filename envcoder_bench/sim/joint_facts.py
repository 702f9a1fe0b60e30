"""What a positive joint position and a positive effort do, derived from a model by one small step, in words."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from envcoder_bench.sim.mujoco_model import RobotModel

SMALL = 1e-4  # rad or m of a joint
ALONG = 0.95  # least cosine to an axis for a direction that is named after it
FEW = 4  # joints of a robot for which the accelerations of all joints are told


def joint_facts(
    model: mujoco.MjModel, qpos: np.ndarray, joints: Mapping[str, int], keys: Mapping[str, str]
) -> dict[str, str]:
    """Return for each joint its axis, and where a positive step from ``qpos`` moves what hangs on it.

    Directions are those of the world, for a robot whose base is as in ``qpos``.

    Args:
        joints: ids of joints by name.
        keys: names of the positions of slides, by joint, for directions along them.
    """
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_kinematics(model, data)
    axes, before, facts = np.array(data.xaxis), np.array(data.xipos), dict[str, str]()
    for name, joint in joints.items():
        if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE:
            facts[name] = f"slides along {_direction(axes[joint])}"
            continue
        data.qpos[model.jnt_qposadr[joint]] += SMALL
        mujoco.mj_kinematics(model, data)
        moves = (data.xipos - before) / SMALL
        slides = {keys.get(x, x): axes[other] for x, other in joints.items() if _carries(model, other, joint)}
        facts[name] = f"turns about {_direction(axes[joint])}{_moved(model, moves, slides, len(joints))}"
        data.qpos[model.jnt_qposadr[joint]] -= SMALL
    return facts


def _carries(model: mujoco.MjModel, slide: int, joint: int) -> bool:
    """Return whether a joint is a slide that carries the body of another one."""
    body = model.jnt_bodyid[joint]
    while body and body != model.jnt_bodyid[slide]:
        body = model.body_parentid[body]
    return bool(body) and model.jnt_type[slide] == mujoco.mjtJoint.mjJNT_SLIDE


def _moved(model: mujoco.MjModel, moves: np.ndarray, slides: Mapping[str, np.ndarray], joints: int) -> str:
    """Describe where the body goes that moves most; ``moves`` is in metres for each rad."""
    sizes = np.linalg.norm(moves, axis=1)
    body = int(sizes.argmax())
    if sizes[body] < 1e-3:
        return ""
    direction = moves[body] / sizes[body]
    towards = _direction(direction)
    for name, axis in slides.items():
        if abs(axis @ direction) > ALONG:
            towards = f"{'positive' if axis @ direction > 0 else 'negative'} {name}, {towards}"
    lever = f", {sizes[body]:.2g} m/rad" if joints <= FEW else ""
    return f", positive moves {model.body(body).name.rpartition('/')[2]} towards {towards}{lever}"


def drive_facts(model: mujoco.MjModel, joints: Mapping[str, int]) -> dict[str, str]:
    """Return gains and the greatest effort of the actuator that drives each joint, of those that have one."""
    by_joint, facts = {joint: name for name, joint in joints.items()}, dict[str, str]()
    for k in range(model.nu):
        name = by_joint.get(int(model.actuator_trnid[k, 0]))
        if name is None or model.actuator_trntype[k] != mujoco.mjtTrn.mjTRN_JOINT:
            continue
        joint = joints[name]
        unit = "N" if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE else "N m"
        gains = model.actuator_gainprm[k, 0], -model.actuator_biasprm[k, 2]
        parts = []
        if model.actuator_biastype[k] == mujoco.mjtBias.mjBIAS_AFFINE and model.actuator_biasprm[k, 1] == -gains[0]:
            parts.append(f"stiffness {gains[0]:.3g}, damping {gains[1]:.3g}")
        limits = [
            float(np.abs(ends[i]).max())
            for limited, ends, i in (
                (model.actuator_forcelimited, model.actuator_forcerange, k),
                (model.jnt_actfrclimited, model.jnt_actfrcrange, joint),
            )
            if limited[i]
        ]
        parts += [f"{min(limits):.3g} {unit} at most"] if limits else []
        facts[name] = ", ".join(parts)
    return {name: text for name, text in facts.items() if text}


def pushes(robot: RobotModel, dof_pos: Sequence[float]) -> list[str]:
    """Return what an effort of 1 on each drive for one control step adds to the velocities; empty for many joints."""
    model, first, count = robot.mj_model, robot.first_qvel, len(robot.dof_names)
    if count > FEW or robot.floating:
        return []

    def velocities(joint: int | None) -> np.ndarray:
        data = mujoco.MjData(model)
        data.qpos[:count] = dof_pos
        if joint is not None:
            data.qfrc_applied[first + joint] = 1.0
        for _ in range(robot.substeps):
            mujoco.mj_step(model, data)
        return np.array(data.qvel[first : first + count])

    free = velocities(None)
    drives = [k for k in range(count) if robot.effort_limits[k] > 0.0]
    changes = {robot.dof_names[k]: velocities(k) - free for k in drives}
    return [
        f"an effort of +1 on {name} for a control step adds [{', '.join(f'{x:.2g}' for x in change)}] to dof_vel"
        for name, change in changes.items()
    ]


def _direction(vector: np.ndarray) -> str:
    """Return ``+y`` for a direction along an axis, else its numbers."""
    axis = int(np.abs(vector).argmax())
    if abs(vector[axis]) > ALONG:
        return f"{'+' if vector[axis] > 0 else '-'}{'xyz'[axis]}"
    return f"({', '.join(f'{x:.1f}' for x in np.round(vector, 1) + 0.0)})"
