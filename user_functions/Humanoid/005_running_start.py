"""A running start: episodes begin at up to 3 m/s with one leg ahead, left or right.

From standstill, a policy must find the first step before it can practise the second. Fitness is measured from the
task's own initial states, at rest.
"""
from envcoder_bench.torch_utils import torch_rand_float


def compute_initial_state(state_dict):
    start = state_dict["initial_root_states"]
    n, device = start.shape[0], start.device
    speed = torch_rand_float(0.0, 3.0, (n, 1), device)
    stride = 0.25 * speed * torch.sign(torch_rand_float(-1.0, 1.0, (n, 1), device))  # rad, which leg is ahead
    noise = torch_rand_float(-0.1, 0.1, (n, 21), device)

    # joints 3 to 8 and 9 to 14 are the legs: hip x, z, y, knee, ankle y, x. Negative hip y swings a leg forward
    nothing = torch.zeros(n, 5, device=device)
    legs = torch.cat((nothing, -stride, nothing, stride, torch.zeros(n, 9, device=device)), dim=1)
    dof_pos = torch.clamp(legs + noise, state_dict["dof_limits_lower"], state_dict["dof_limits_upper"])
    root_states = torch.cat((start[:, :7], speed, start[:, 8:]), dim=1)
    return {"root_states": root_states, "dof_pos": dof_pos}
