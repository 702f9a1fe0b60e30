"""How far the cube's corners are from where the goal has them: position and rotation in one distance, in metres.

The human baseline's 1 / (angle + 0.1) hardly changes between half a turn and a quarter; the corners come nearer with
every degree. Their mean square distance is that of the centre, plus that of each axis' tip, half an edge out.
"""
from envcoder_bench.torch_utils import quat_axis


def compute_reward(state_dict):
    object_rot, goal_rot = state_dict["object_rot"], state_dict["goal_rot"]
    half_edge = 0.5 * state_dict["object_size"]
    squares = torch.sum(torch.square(state_dict["object_pos"] - state_dict["goal_pos"]), dim=-1)
    for axis in range(3):
        apart = half_edge * (quat_axis(object_rot, axis) - quat_axis(goal_rot, axis))
        squares = squares + torch.sum(torch.square(apart), dim=-1)
    distance = torch.sqrt(squares)

    cosine = torch.abs(torch.sum(object_rot * goal_rot, dim=-1))  # of half the angle between
    reached = (cosine >= torch.cos(0.5 * state_dict["success_tolerance"])).float()
    components = {
        "near": -20.0 * distance,
        "close": 5.0 * torch.exp(-distance / 0.02),
        "goal": state_dict["reach_goal_bonus"] * reached,
        "action": -0.002 * torch.sum(torch.square(state_dict["actions"]), dim=-1),
    }
    return sum(components.values()), components
