"""Constants grouped in a plain class used as a namespace; nested helper functions."""
import math
import torch


class C:
    TARGET_HEIGHT = 1.34
    HEIGHT_TEMP = 0.3
    SPEED_TEMP = math.e
    class Weight:
        HEIGHT = 0.4
        SPEED = 1.6


def compute_reward(state_dict):
    def kernel(x, temp):
        return torch.exp(-torch.abs(x) / temp)

    root_states = state_dict["root_states"]
    height = kernel(root_states[:, 2] - C.TARGET_HEIGHT, C.HEIGHT_TEMP)
    speed = torch.log1p(torch.relu(root_states[:, 7])) * C.SPEED_TEMP
    feet = state_dict["vec_sensor_tensor"].view(-1, 2, 6)[..., 2]
    one_foot = ((feet > 10.0).sum(dim=-1) == 1).to(torch.float)
    reward = C.Weight.HEIGHT * height + C.Weight.SPEED * speed + 0.1 * one_foot
    return reward, dict(height=height, speed=speed, one_foot=one_foot)
