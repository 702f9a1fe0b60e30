"""Prints the mean reward at every call."""
import torch


def compute_reward(state_dict):
    angle = state_dict["pole_angle"]
    reward = torch.cos(angle) - 0.01 * state_dict["pole_vel"].abs()
    print(f"mean reward: {reward.mean().item():.4f}")
    return reward
