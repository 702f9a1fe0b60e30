import torch

LEGS = ["LF", "LH", "RF", "RH"]

def compute_reward(state_dict):
    q, dq = state_dict["dof_pos"], state_dict["dof_vel"]
    parts = {}
    for i, leg in enumerate(LEGS):
        hip, thigh, knee = q[:, 3 * i], q[:, 3 * i + 1], q[:, 3 * i + 2]
        parts[f"{leg} hip"] = -hip.abs()
        parts[f"{leg} stretch"] = -torch.square(thigh + 0.5 * knee)
    total = torch.zeros(q.shape[0], device=q.device)
    for value in parts.values():
        total = total + 0.1 * value
    total -= 1e-3 * torch.stack([dq[:, k] ** 2 for k in range(12)], dim=-1).mean(dim=-1)
    return total, parts
