"""What policies do to the physics: speeds of joints and of the robot, mechanical power, and how deep bodies touch."""

# MuJoCo's bindings carry no types
# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

import mujoco
import numpy as np
import torch
from torch import Tensor

from envcoder_bench.env.grouped_vec_task import GroupedVecTask

EVERY = 10  # control steps between two samples
STATES = 4096  # most states of a group whose contacts are computed


class Motion:
    """Samples of an environment's motion, a row for each sampled control step.

    Attributes:
        rows: by name, ``(num_envs,)`` tensors: ``joint_speed`` (the fastest joint's, rad/s or m/s), ``root_speed``
            (m/s), ``power`` (sum of ``|effort * speed|`` over the joints, W).
        fastest: ``(num_envs,)`` the fastest joint speed of all control steps.
        unstable: ``(num_envs,)`` number of control steps with unstable physics.
        poses: MuJoCo's qpos, ``(num_envs, nq)`` float64 on the CPU.
    """

    def __init__(self, env: GroupedVecTask, model: mujoco.MjModel) -> None:
        self.env, self.model, self.steps = env, model, 0
        self.sim: Any = env.task.sim  # type: ignore[attr-defined]
        self.floating = bool(model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE)
        self.rows: dict[str, list[Tensor]] = {"joint_speed": [], "root_speed": [], "power": []}
        self.fastest = torch.zeros(env.num_envs, device=env.device)
        self.unstable = torch.zeros(env.num_envs, device=env.device)
        self.poses: list[np.ndarray] = []

    def sample(self) -> None:
        """Read the state after a control step."""
        sim = self.sim
        speed = sim.dof_vel.abs()
        torch.maximum(self.fastest, speed.amax(dim=1), out=self.fastest)
        self.unstable += self.env.task.unstable
        self.steps += 1
        if self.steps % EVERY:
            return
        self.rows["joint_speed"].append(speed.amax(dim=1))
        self.rows["root_speed"].append(sim.root_states[:, 7:10].norm(dim=1))
        self.rows["power"].append((sim.dof_force * sim.dof_vel).abs().sum(dim=1))
        self.poses.append(_qpos(sim, self.floating))

    def summary(self, group: int) -> dict[str, Any]:
        """Return mean, 99th percentile and greatest value of each quantity in a group; depths in mm.

        Depths are how far bodies are inside each other or the ground: the deepest contact of each state.
        """
        own = self.env.layout.slice(group)
        found: dict[str, Any] = {name: _spread(torch.stack(rows)[:, own]) for name, rows in self.rows.items() if rows}
        poses = np.concatenate([pose[own] for pose in self.poses])
        poses = poses[:: max(1, len(poses) // STATES)]
        found["depth_mm"] = _spread(torch.from_numpy(1000.0 * depths(self.model, poses)))
        found["fastest_joint"] = float(self.fastest[own].max())
        found["unstable_steps"] = int(self.unstable[own].sum())
        return found


@contextmanager
def watched(env: GroupedVecTask, model: mujoco.MjModel) -> Iterator[Motion]:
    """Sample each control step of an environment in the block; ``model`` is its robot."""
    motion, step = Motion(env, model), env.task.step

    def step_and_sample(command: Tensor) -> None:
        step(command)
        motion.sample()

    env.task.step = step_and_sample  # type: ignore[method-assign]
    try:
        yield motion
    finally:
        del env.task.step


def depths(model: mujoco.MjModel, poses: np.ndarray) -> np.ndarray:
    """Return the depth of the deepest contact of each of ``(n, nq)`` poses, m; 0 without contact."""
    data, deepest = mujoco.MjData(model), np.zeros(len(poses))
    for i, pose in enumerate(poses):
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        if data.ncon:
            deepest[i] = max(0.0, -float(data.contact.dist.min()))
    return deepest


def _qpos(sim: Any, floating: bool) -> np.ndarray:
    """Return qpos of all environments from the simulator's state tensors."""
    bodies = [sim.object_states[:, k] for k in range(sim.object_states.shape[1])]
    free = [torch.cat((x[:, :3], x[:, 6:7], x[:, 3:6]), dim=1) for x in (sim.root_states, *bodies)]
    parts = [*(free[:1] if floating else []), sim.dof_pos, *free[1:]]
    return torch.cat(parts, dim=1).double().cpu().numpy()


def _spread(values: Tensor) -> dict[str, float]:
    flat = values.double().flatten().cpu()
    ordered = flat.sort().values
    p99 = ordered[int(0.99 * (len(ordered) - 1))]
    return {"mean": float(flat.mean()), "p99": float(p99), "max": float(ordered[-1])}
