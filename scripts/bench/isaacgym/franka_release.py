"""The native FrankaCubeStack's human reward for IsaacGymEnvs' task: a released stack pays in every step.

The stack counts as released if the fingers are open wider than the cube; the native task looks at contact forces, which
this task does not publish.
"""

import torch


def compute_reward(state_dict):
    size_a, size_b, offset = state_dict["cubeA_size"], state_dict["cubeB_size"], state_dict["cubeA_to_cubeB_pos"]
    cube_a, d = state_dict["cubeA_pos"], torch.norm(state_dict["cubeA_pos_relative"], dim=-1)
    d_left = torch.norm(cube_a - state_dict["eef_lf_pos"], dim=-1)
    d_right = torch.norm(cube_a - state_dict["eef_rf_pos"], dim=-1)
    near = 1.0 - torch.tanh(10.0 * (d + d_left + d_right) / 3.0)

    height = cube_a[:, 2] - state_dict["reward_settings_table_height"]
    lifted = ((height - size_a) > 0.04).float()
    vertical = offset[:, 2] + (size_a + size_b) / 2.0
    to_place = torch.sqrt(torch.sum(torch.square(offset[:, :2]), dim=-1) + torch.square(vertical))
    aligned = (1.0 - torch.tanh(10.0 * to_place)) * lifted
    components = {
        "dist": state_dict["reward_settings_r_dist_scale"] * torch.maximum(near, aligned),
        "lift": state_dict["reward_settings_r_lift_scale"] * lifted,
        "align": state_dict["reward_settings_r_align_scale"] * aligned,
    }
    on_b = torch.abs(height - (size_b + size_a / 2.0)) < 0.02
    over_b = torch.norm(offset[:, :2], dim=-1) < 0.02
    is_open = state_dict["q_gripper"].sum(dim=-1) > size_a + 0.005
    away = torch.clamp(d / 0.04, max=1.0)
    stack = state_dict["reward_settings_r_stack_scale"] * torch.where(on_b & over_b & is_open, away, 0.0)
    return torch.maximum(components["dist"] + components["lift"] + components["align"], stack), {
        **components,
        "stack": stack,
    }


def compute_terminal(rew_buf):
    return torch.zeros_like(rew_buf)
