"""What matters to the cube: where the fingertips are from it, and about which axis it has to turn, and how far.

A quaternion and its negative are one rotation, but two inputs to a network; a rotation vector and the directions of two
axes are without that doubt. Fingertips follow from joint angles, but the network would have to learn how.
"""
from envcoder_bench.torch_utils import quat_conjugate, quat_mul, quat_to_exp_map, quat_to_tan_norm, unscale


def compute_observation(state_dict):
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    pos = state_dict["object_pos"]
    way = quat_to_exp_map(quat_mul(state_dict["goal_rot"], quat_conjugate(state_dict["object_rot"])))
    tips = (state_dict["fingertip_pos"] - pos.unsqueeze(1)).flatten(1)
    return torch.cat(
        (
            unscale(state_dict["shadow_hand_dof_pos"], lower, upper),
            state_dict["vel_obs_scale"] * state_dict["shadow_hand_dof_vel"],
            10.0 * (pos - state_dict["goal_pos"]),
            quat_to_tan_norm(state_dict["object_rot"]),
            state_dict["object_linvel"],
            state_dict["vel_obs_scale"] * state_dict["object_angvel"],
            way,
            10.0 * tips,
            state_dict["actions"],
        ),
        dim=-1,
    )
