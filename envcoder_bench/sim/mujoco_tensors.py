"""The state tensors that both simulators of a MuJoCo model share."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from envcoder_bench.sim.base import Simulator
from envcoder_bench.sim.joint_facts import joint_facts, pushes
from envcoder_bench.sim.mujoco_model import RobotModel


class MujocoTensors(Simulator):
    """A simulator of a ``RobotModel``, with its state tensors in the default state, but not the physics.

    A subclass adds ``site_states``, ``jacobian``, ``mass_matrix``, ``engine_warnings``, and for videos ``pose_source``.
    """

    def __init__(self, robot: RobotModel, num_envs: int, device: str) -> None:
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.dt, self.floating = robot.dt, robot.floating
        self.dof_names = robot.dof_names
        self.body_names = robot.body_names
        self.sensor_names = robot.sensor_names
        self.object_names = robot.object_names
        self.site_names = robot.sites.names
        self.dof_limits_lower, self.dof_limits_upper = robot.dof_limits_lower, robot.dof_limits_upper
        self.effort_limits = robot.effort_limits
        self.drive_gains = {name: torch.zeros(len(robot.dof_names)) for name in ("stiffness", "damping")}
        for name, gain in self.drive_gains.items():
            gain[torch.from_numpy(robot.actuated)] = torch.tensor(getattr(robot, name), dtype=torch.float32)
        self.body_masses = torch.tensor(robot.mj_model.body_mass[1:], dtype=torch.float32)
        self._robot, self.base = robot, robot.base
        # factors of the drives' efforts and gains, by environment
        self._strength, self._gains = torch.ones(2, num_envs, dtype=torch.float64, device=self.device)

        dofs, bodies, sensors = len(robot.dof_names), len(robot.body_names), len(robot.sensor_bodies)
        root = torch.from_numpy(robot.default_root_state()).to(self.device)
        self.root_states = root.repeat(num_envs, 1)
        self.dof_pos = torch.zeros(num_envs, dofs, device=self.device)
        self.dof_vel = torch.zeros(num_envs, dofs, device=self.device)
        self.dof_force = torch.zeros(num_envs, dofs, device=self.device)
        self.contact_forces = torch.zeros(num_envs, bodies, 3, device=self.device)
        self.sensor_forces = torch.zeros(num_envs, sensors, 6, device=self.device)
        self.object_states = torch.from_numpy(robot.default_object_states()).to(self.device).repeat(num_envs, 1, 1)
        self.unstable = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self.contact_overflows = torch.zeros(num_envs, dtype=torch.int32, device=self.device)
        # environments whose state write has refused since the last step
        self._refused = torch.zeros(num_envs, dtype=torch.bool, device=self.device)
        self._effort = torch.zeros(num_envs, dtype=torch.bool, device=self.device)

    def joint_facts(
        self, dof_pos: Sequence[float], keys: Mapping[str, str]
    ) -> tuple[dict[str, str], list[str], list[float]]:
        """Return axes and signs of the joints by name, what efforts change, and the masses of bodies that move.

        See ``joint_facts.py``.
        """
        model = self._robot.mj_model
        masses = np.where(model.body_weldid[1:] == 0, 0.0, model.body_mass[1:]).tolist()
        robot = self._robot
        qpos = np.array(robot.mj_model.qpos0)
        qpos[robot.first_qpos : robot.first_qpos + len(dof_pos)] = dof_pos
        joints = {name: int(robot.floating) + k for k, name in enumerate(robot.dof_names)}
        return joint_facts(robot.mj_model, qpos, joints, keys), pushes(robot, dof_pos), masses

    def _live(self) -> dict[str, Tensor]:
        """Return the tensors of a saved state that are not the engine's."""
        return {
            "effort": self._effort,
            "root_states": self.root_states,
            "dof_pos": self.dof_pos,
            "dof_vel": self.dof_vel,
            "dof_force": self.dof_force,
            "contact_forces": self.contact_forces,
            "sensor_forces": self.sensor_forces,
            "object_states": self.object_states,
            "unstable": self.unstable,
            "refused": self._refused,
            "contact_overflows": self.contact_overflows,
        }
