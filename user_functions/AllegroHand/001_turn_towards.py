"""Pay for turning: the part of the cube's angular velocity that takes it to the goal by the shortest way.

The human baseline pays for being aligned, so that a cube held still nearly there earns for ever. Here a cube that rests
earns nothing, and the first degree is worth as much as the last; turning to and fro adds up to zero.
"""
from envcoder_bench.torch_utils import quat_conjugate, quat_mul, quat_to_exp_map


def compute_reward(state_dict):
    # axis times angle, rad, world frame
    way = quat_to_exp_map(quat_mul(state_dict["goal_rot"], quat_conjugate(state_dict["object_rot"])))
    angle = torch.norm(way, p=2, dim=-1)
    direction = way / torch.clamp(angle, min=1e-3).unsqueeze(-1)
    towards = torch.sum(state_dict["object_angvel"] * direction, dim=-1)

    goal_dist = torch.norm(state_dict["object_pos"] - state_dict["goal_pos"], p=2, dim=-1)
    reached = (angle <= state_dict["success_tolerance"]).float()
    components = {
        "towards": 40.0 * state_dict["dt"] * torch.clamp(towards, -5.0, 5.0),  # 40 for a radian
        "distance": -5.0 * goal_dist,
        "goal": state_dict["reach_goal_bonus"] * reached,
        "fall": -50.0 * (goal_dist >= state_dict["fall_dist"]).float(),
    }
    return sum(components.values()), components
