"""Half of the episodes begin in a hand that is made to catch: fingers a little bent, the thumb behind the cube.

From the task's own starts every fifth cube falls even if the hand keeps still, and more fall where it explores. Where
it stays, there is time to find out what turns it. Fitness is measured from the task's own starts.
"""
from envcoder_bench.torch_utils import torch_rand_float


def compute_initial_state(state_dict):
    start = state_dict["object_init_state"]
    lower, upper = state_dict["shadow_hand_dof_lower_limits"], state_dict["shadow_hand_dof_upper_limits"]
    n, device = start.shape[0], start.device

    span = upper - lower
    flat = 0.2 * (lower + torch_rand_float(0.0, 1.0, (n, 16), device) * span)
    one = torch.ones(n, 1, device=device)
    finger = [0.5 * one, 0.2 * one, 0.2 * one, 0.2 * one]  # shares of its joints' ranges
    thumb = [0.8 * one, 0.6 * one, 0.4 * one, 0.4 * one]
    cupped = lower + (torch.cat(3 * finger + thumb, dim=1) + torch_rand_float(-0.05, 0.05, (n, 16), device)) * span
    half_of_them = torch_rand_float(0.0, 1.0, (n, 1), device) < 0.5

    turned = torch_rand_float(-1.0, 1.0, (n, 4), device)
    turned = turned / torch.clamp(torch.norm(turned, p=2, dim=-1, keepdim=True), min=1e-3)
    shift = torch_rand_float(-0.01, 0.01, (n, 3), device)
    return {
        "object_state": torch.cat((start[:, 0:3] + shift, turned, start[:, 7:13]), dim=-1),
        "dof_pos": torch.where(half_of_them, cupped, flat),
        "dof_vel": torch.zeros_like(flat),
    }
