"""IsaacGymEnvs' own reward and ending, with a stack: how a terminal can spoil a good reward.

A stack pays 16 and the episode is over; a cube that is lifted and held in its place pays 3.6 at every step, which
discounted by 0.99 is worth 360. So the best policy holds the cube on its place and never lets go: after 313 M env-steps,
cube A was in its place in 94 % of the episodes, and let go in none.

Trained on without the ending, that policy began to hold the cube by its edge, its centre 4.1 cm from the grip site, where
this reward takes the gripper for away. The human baseline pays for a cube that nothing touches.
"""
import torch


def compute_reward(state_dict):
    size_a, size_b, offset = state_dict["cubeA_size"], state_dict["cubeB_size"], state_dict["cubeA_to_cubeB_pos"]
    cube_a = state_dict["cubeA_pos"]
    fingers = ("eef_lf_pos", "eef_rf_pos")
    d = torch.norm(state_dict["cubeA_pos_relative"], dim=-1)
    d = d + sum(torch.norm(cube_a - state_dict[key], dim=-1) for key in fingers)
    near = 1.0 - torch.tanh(10.0 * d / 3.0)

    lifted = (cube_a[:, 2] - state_dict["table_height"] - size_a > 0.04).float()
    vertical = offset[:, 2] + (size_a + size_b) / 2.0
    to_place = torch.sqrt(torch.sum(torch.square(offset[:, :2]), dim=-1) + torch.square(vertical))
    aligned = (1.0 - torch.tanh(10.0 * to_place)) * lifted
    components = {
        "dist": state_dict["r_dist_scale"] * torch.maximum(near, aligned),
        "lift": state_dict["r_lift_scale"] * lifted,
        "align": state_dict["r_align_scale"] * aligned,
    }
    stacked = compute_terminal(state_dict)
    total = torch.where(stacked, state_dict["r_stack_scale"], sum(components.values()))
    return total, {**components, "stack": state_dict["r_stack_scale"] * stacked.float()}


def compute_terminal(state_dict):
    height = state_dict["cubeA_pos"][:, 2] - state_dict["table_height"]
    on_b = torch.abs(height - (state_dict["cubeB_size"] + 0.5 * state_dict["cubeA_size"])) < 0.02
    over_b = torch.norm(state_dict["cubeA_to_cubeB_pos"][:, :2], dim=-1) < 0.02
    return on_b & over_b & (torch.norm(state_dict["cubeA_pos_relative"], dim=-1) > 0.04)
