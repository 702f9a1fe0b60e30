"""An operational space controller with damped least squares."""
import torch

ACTION_DIM = 7
KP, DAMPING, LAMBDA = 150.0, 1.0, 0.05


def _dls(jacobian: torch.Tensor, damping: float) -> torch.Tensor:
    eye = torch.eye(6, device=jacobian.device, dtype=jacobian.dtype)
    jt = jacobian.transpose(-2, -1)
    return jt @ torch.inverse(jacobian @ jt + damping ** 2 * eye)


def compute_torque(action, state_dict):
    q, dq = state_dict["dof_pos"][:, :7], state_dict["dof_vel"][:, :7]
    delta = action[:, :6] * state_dict["cmd_limit"].unsqueeze(0)
    dq_target = (_dls(state_dict["jacobian"], LAMBDA) @ delta.unsqueeze(-1)).squeeze(-1)
    arm = torch.bmm(state_dict["mass_matrix"], (KP * dq_target - 2.0 * KP ** 0.5 * DAMPING * dq).unsqueeze(-1)).squeeze(-1)
    arm = torch.clamp(arm, -state_dict["franka_effort_limits"][:7], state_dict["franka_effort_limits"][:7])
    gripper = torch.where(action[:, 6:7] >= 0.0, 10.0, -10.0).expand(-1, 2)
    return torch.cat([arm, gripper], dim=-1)
