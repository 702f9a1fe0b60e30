"""Falls are punished by writing through a mask."""
import torch


def compute_reward(state_dict):
    heights = state_dict["root_states"][:, 2]
    reward = state_dict["potentials"] - state_dict["prev_potentials"]
    reward = reward + 0.5
    fallen = heights < state_dict["termination_height"]
    reward[fallen] = -2.0
    bonus = torch.zeros_like(reward)
    bonus[state_dict["up_vec"][:, 2] > 0.93] = 0.1
    bonus[~fallen & (heights > 0.5)] += 0.05
    return reward + bonus, {"bonus": bonus, "fallen": fallen.float()}
