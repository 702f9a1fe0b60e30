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


def joint_facts(robot: RobotModel, dof_pos: Sequence[float], keys: Mapping[str, str]) -> dict[str, str]:
    """Return for each joint its axis, and where a positive step from ``dof_pos`` moves what hangs on it.

    Directions are those of the world, for a robot whose base is as in the model's file.

    Args:
        keys: names of the positions of slides, by joint, for directions along them.
    """
    model, data = robot.mj_model, mujoco.MjData(robot.mj_model)
    data.qpos[robot.first_qpos : robot.first_qpos + len(dof_pos)] = dof_pos
    mujoco.mj_kinematics(model, data)
    first, facts = int(robot.floating), {}
    axes, before = np.array(data.xaxis[first:]), np.array(data.xipos)
    for k, name in enumerate(robot.dof_names):
        if model.jnt_type[first + k] == mujoco.mjtJoint.mjJNT_SLIDE:
            facts[name] = f"slides along {_direction(axes[k])}"
            continue
        data.qpos[robot.first_qpos + k] += SMALL
        mujoco.mj_kinematics(model, data)
        moves = (data.xipos - before) / SMALL
        slides = {
            keys.get(other, other): axes[j] for j, other in enumerate(robot.dof_names) if _carries(model, first, j, k)
        }
        facts[name] = f"turns about {_direction(axes[k])}{_moved(robot, moves, slides)}"
        data.qpos[robot.first_qpos + k] -= SMALL
    return facts


def _carries(model: mujoco.MjModel, first: int, slide: int, joint: int) -> bool:
    """Return whether a joint is a slide that carries the body of another one."""
    body = model.jnt_bodyid[first + joint]
    while body and body != model.jnt_bodyid[first + slide]:
        body = model.body_parentid[body]
    return bool(body) and model.jnt_type[first + slide] == mujoco.mjtJoint.mjJNT_SLIDE


def _moved(robot: RobotModel, moves: np.ndarray, slides: Mapping[str, np.ndarray]) -> str:
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
    lever = f", {sizes[body]:.2g} m/rad" if len(robot.dof_names) <= FEW else ""
    return f", positive moves {robot.mj_model.body(body).name} towards {towards}{lever}"


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
