"""Joint targets from the Jacobian's transpose; gripper from the sign of the last action."""
import torch
import numpy as np

ACTION_DIM = 4
STEP = np.array([0.05, 0.05, 0.05], dtype=np.float32)


def compute_dof_target(action, state_dict):
    step = torch.from_numpy(STEP).to(action.device)
    twist = torch.cat([action[:, :3] * step, torch.zeros_like(action[:, :3])], dim=-1)
    dq = torch.einsum("nij,ni->nj", state_dict["jacobian"], twist)
    arm = state_dict["dof_pos"][:, :7] + 2.0 * dq
    fingers = torch.where(action[:, 3] > 0, 0.04, 0.0).unsqueeze(-1).repeat(1, 2)
    target = torch.cat([arm, fingers], dim=-1)
    return torch.clamp(target, state_dict["franka_dof_lower_limits"], state_dict["franka_dof_upper_limits"])
