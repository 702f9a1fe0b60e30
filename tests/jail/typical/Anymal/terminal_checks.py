"""Ends episodes on falls, on tilting over, or when joints run away; prints what it does once."""
import torch

MAX_TILT_DEG = 60
print("terminal conditions: height, tilt, joint velocity")


def compute_terminal(state_dict, *, min_height: float = 0.25):
    root_states = state_dict["root_states"]
    x, y, z, w = root_states[:, 3:7].unbind(dim=-1)
    up_z = 1.0 - 2.0 * (x * x + y * y)
    tilted = up_z < torch.cos(torch.deg2rad(torch.tensor(float(MAX_TILT_DEG), device=root_states.device)))
    low = root_states[:, 2] < min_height
    fast = (state_dict["dof_vel"].abs() > 50.0).any(dim=-1)
    base_hit = state_dict["contact_forces"][:, state_dict["base_index"], :].norm(dim=-1) > 1.0
    done = tilted | low | fast | base_hit
    print("done:", done.shape, done.dtype)
    return done
