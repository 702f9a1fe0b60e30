"""Reach, grasp, lift, place: each stage pays a little more than the one before, and none is lost by going on.

IsaacGymEnvs' reward does not see a grasp. Here the forces on both fingers show it, and lifting pays by the height, from
the first millimetre, instead of once above 4 cm.
"""
import torch


def compute_reward(state_dict):
    size_a, size_b, to_b = state_dict["cubeA_size"], state_dict["cubeB_size"], state_dict["cubeA_to_cubeB_pos"]
    distance = torch.norm(state_dict["cubeA_pos_relative"], dim=1)
    height = state_dict["cubeA_pos"][:, 2] - state_dict["table_height"] - 0.5 * size_a  # 0 on the table

    force = torch.norm(state_dict["contact_forces"][:, state_dict["finger_indices"]], dim=2)
    grasped = ((force > 1.0).all(dim=1) & (distance < 0.03)).float()  # both fingers press, and the cube is between them
    lifted = torch.clamp(height / size_b, 0.0, 1.0)

    # where cube A's centre is to be: over cube B's, first high, then on it
    sideways = torch.norm(to_b[:, :2], dim=1)
    above = to_b[:, 2] + 0.5 * (size_a + size_b)
    place = torch.exp(-10.0 * sideways) * (lifted > 0.5).float()
    down = torch.exp(-20.0 * torch.abs(above)) * (sideways < 0.02).float()
    stands = (state_dict["stand_steps"] > 0).float()
    components = {
        "reach": 0.2 * torch.exp(-5.0 * distance),
        "grasp": 0.3 * grasped,
        "lift": 1.0 * lifted * torch.maximum(grasped, stands),
        "place": 1.0 * place,
        "down": 1.0 * down,
        "stands": 10.0 * stands,
    }
    return sum(components.values()), components
