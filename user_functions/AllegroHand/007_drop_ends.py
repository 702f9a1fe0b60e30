"""A cube that leaves the hand ends the episode, not only one that is 24 cm away; leaving costs.

The human baseline's episode goes on while the cube falls, a fifth of a second in which nothing can be learnt, and its
fall costs nothing. Here an episode ends 10 cm from the goal's position, and every step in the hand is worth something.
"""
from envcoder_bench.torch_utils import quat_conjugate, quat_mul


def compute_terminal(object_pos, goal_pos):
    return torch.norm(object_pos - goal_pos, p=2, dim=-1) > 0.1


def compute_reward(state_dict):
    goal_dist = torch.norm(state_dict["object_pos"] - state_dict["goal_pos"], p=2, dim=-1)
    apart = quat_mul(state_dict["object_rot"], quat_conjugate(state_dict["goal_rot"]))
    angle = 2.0 * torch.asin(torch.clamp(torch.norm(apart[:, 0:3], p=2, dim=-1), max=1.0))
    components = {
        "in_hand": 1.0 - 10.0 * goal_dist,
        "rotation": 1.0 / (angle + state_dict["rot_eps"]),
        "goal": state_dict["reach_goal_bonus"] * (angle <= state_dict["success_tolerance"]).float(),
        "leaving": -50.0 * (goal_dist > 0.1).float(),
    }
    return sum(components.values()), components
