"""Joint noise scaled to the ranges, drawn with the helper; the object starts a little higher."""
import torch
from isaacgymenvs.utils.torch_jit_utils import torch_rand_float, tensor_clamp, unscale

__all__ = ["compute_initial_state"]
__version__ = "0.1"


def compute_initial_state(state_dict):
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    n = state_dict["dof_pos"].shape[0]
    noise = torch_rand_float(-1.0, 1.0, (n, 2 * lower.numel()), device=str(state_dict["dof_pos"].device))
    position, velocity = noise.chunk(2, dim=-1)
    dof_pos = state_dict["shadow_hand_dof_default_pos"] + 0.2 * position * (upper - lower) / 2
    obj = state_dict["object_init_state"].clone()
    obj[:, 2] = obj[:, 2] + 0.01
    return {"dof_pos": tensor_clamp(dof_pos, lower, upper), "dof_vel": 0.1 * velocity, "object_state": obj}


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    print(parser.parse_args())
