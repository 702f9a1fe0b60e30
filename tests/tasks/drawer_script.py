"""A scripted policy that opens the drawer of IsaacGymEnvs' FrankaCabinet, to show that the task can be solved."""

import torch
from torch import Tensor

from envcoder_bench.torch_utils import quat_conjugate, quat_mul

APPROACH, REACH, GRASP, PULL = range(4)
REACH_STEPS, GRASP_STEPS = 70, 25
INTO_CABINET = torch.tensor([0.5, -0.5, -0.5, 0.5])  # xyzw of the hand: its z axis into the cabinet, its y axis up
LINK7 = 6  # its row in the Jacobian, which leaves out the fixed base
IN_FRONT, TIP = 0.12, 0.027  # m: of the handle before reaching; from the handle where fingertips touch the drawer


class DrawerScript:
    """Grasps the handle, and pulls until the drawer is open by ``goal``, m.

    Attributes:
        phase: ``(num_envs,)`` which of the phases above each environment is in.
    """

    def __init__(self, num_envs: int, goal: float) -> None:
        self.goal = goal
        self.phase = torch.zeros(num_envs, dtype=torch.int64)
        self.steps = torch.zeros(num_envs, dtype=torch.int64)

    def __call__(self, task, jacobian: Tensor) -> Tensor:
        """The task's action ``(num_envs, 9)``; ``jacobian`` of the robot ``(num_envs, links, 6, 9)``."""
        ahead = torch.where(self.phase == APPROACH, IN_FRONT, 0.0)
        missing = (self.goal - task.cabinet_dof_pos[:, 3]).clamp(-0.03, 0.12)
        ahead = torch.where(self.phase == PULL, missing + TIP, ahead)
        offset = task.drawer_grasp_pos - task.franka_grasp_pos
        offset[:, 0] += ahead
        turn = quat_mul(INTO_CABINET.expand_as(task.franka_grasp_rot), quat_conjugate(task.franka_grasp_rot))
        turn = 2.0 * torch.sign(turn[:, 3:]) * turn[:, :3]

        moved = self._joint_moves(torch.cat((offset, turn), 1), task, jacobian)
        wanted = task.franka_dof_pos[:, :7] + 0.5 * moved
        arm = (wanted - task.franka_dof_targets[:, :7]) / (task.dt * task.action_scale)
        grip = torch.where(self.phase >= GRASP, -1.0, 1.0)
        self._go_on(near=(offset.norm(dim=1) < 0.02) & (turn.norm(dim=1) < 0.1), began=task.progress_buf <= 1)
        return torch.cat((arm.clamp(-1.0, 1.0), grip.unsqueeze(1), grip.unsqueeze(1)), 1)

    @staticmethod
    def _joint_moves(error: Tensor, task, jacobian: Tensor) -> Tensor:
        """Joint angles ``(num_envs, 7)`` that move the grasp point by ``error``, by damped least squares."""
        arm = jacobian[:, LINK7, :, :7]
        lever = task.franka_grasp_pos - task.rigid_body_states[:, task.hand_handle, :3]
        linear = arm[:, :3] + torch.cross(arm[:, 3:], lever.unsqueeze(2).expand(-1, -1, 7), dim=1)
        full = torch.cat((linear, arm[:, 3:]), 1)
        damped = full @ full.transpose(1, 2) + 0.05**2 * torch.eye(6)
        return (full.transpose(1, 2) @ torch.linalg.solve(damped, error.unsqueeze(2))).squeeze(2)

    def _go_on(self, near: Tensor, began: Tensor) -> None:
        self.steps += 1
        done = near & (self.phase == APPROACH)
        done |= (self.phase == REACH) & (self.steps > REACH_STEPS)
        done |= (self.phase == GRASP) & (self.steps > GRASP_STEPS)
        self.phase = torch.where(began, 0, self.phase + done.long())
        self.steps *= ~(done | began)
