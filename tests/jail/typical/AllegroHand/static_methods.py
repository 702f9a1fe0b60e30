"""A class as a bag of static methods and class methods."""
import torch


class RewardUtils:
    TEMPERATURES = {"rot": 0.5, "pos": 0.05}

    @staticmethod
    def angle_between(q1, q2):
        dot = torch.sum(q1 * q2, dim=-1).abs().clamp(max=1.0 - 1e-6)
        return 2.0 * torch.acos(dot)

    @classmethod
    def shaped(cls, x, key):
        return torch.exp(-x / cls.TEMPERATURES[key])


def compute_reward(state_dict):
    rot = RewardUtils.shaped(RewardUtils.angle_between(state_dict["object_rot"], state_dict["goal_rot"]), "rot")
    pos = RewardUtils.shaped(torch.dist(torch.zeros(3), torch.ones(3)) * 0 + (
        state_dict["object_pos"] - state_dict["goal_pos"]).norm(dim=-1), "pos")
    vel = torch.sum(torch.abs(state_dict["shadow_hand_dof_vel"]), dim=-1)
    return 5.0 * rot + pos - 1e-3 * vel, {"rot": rot, "pos": pos}


def compute_terminal(state_dict):
    fell = torch.norm(state_dict["object_pos"] - state_dict["goal_pos"], dim=-1) > state_dict["fall_dist"]
    return fell.to(torch.int32)
