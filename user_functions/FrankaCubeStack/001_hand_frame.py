"""The hand's own view: where the cubes are is seen from the hand, so that one grasp is learnt for all places.

A cube looks the same after a quarter turn, its quaternion does not: sine and cosine of four times the angle to it do.
"""
import torch

from envcoder_bench.torch_utils import quat_axis, quat_rotate_inverse


def compute_observation(state_dict):
    hand, eef_vel = state_dict["eef_quat"], state_dict["eef_vel"]
    cube_x, hand_x = quat_axis(state_dict["cubeA_quat"], 0), quat_axis(hand, 0)
    angle = torch.atan2(cube_x[:, 1], cube_x[:, 0]) - torch.atan2(hand_x[:, 1], hand_x[:, 0])  # seen from above
    return torch.cat(
        (
            quat_rotate_inverse(hand, state_dict["cubeA_pos_relative"]),
            quat_rotate_inverse(hand, state_dict["cubeA_to_cubeB_pos"]),
            torch.stack((torch.sin(4.0 * angle), torch.cos(4.0 * angle)), dim=1),
            state_dict["cubeA_pos"][:, 2:] - state_dict["table_height"],
            state_dict["eef_pos"],
            hand,
            quat_rotate_inverse(hand, eef_vel[:, :3]),
            quat_rotate_inverse(hand, eef_vel[:, 3:]),
            state_dict["q_gripper"],
        ),
        dim=1,
    )
