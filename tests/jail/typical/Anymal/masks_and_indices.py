import torch

def compute_reward(state_dict):
    height = state_dict["root_states"][:, 2]
    reward = torch.ones_like(height)
    reward[height < 0.3] = 0.0
    reward = reward * (state_dict["dof_vel"].abs().max(dim=-1)[0] < 30.0).float()
    best, place = torch.topk(state_dict["torques"].abs(), 3, dim=-1)
    reward = reward - 1e-3 * best.mean(-1)
    reward += torch.gather(state_dict["dof_pos"], 1, place[:, :1]).squeeze(-1) * 0.01
    return torch.nan_to_num(reward, nan=0.0)
