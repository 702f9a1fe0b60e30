"""Component names with symbols, as in a paper."""
import torch


def compute_reward(state_dict):
    v = state_dict["root_states"][:, 7:10]
    ω = state_dict["root_states"][:, 10:13]
    cmd = state_dict["commands"]
    σ = 0.25
    track = torch.exp(-torch.sum((cmd[:, :2] - v[:, :2]) ** 2, dim=-1) / σ)
    turn = torch.exp(-((cmd[:, 2] - ω[:, 2]) ** 2) / σ)
    bounce = -2.0 * v[:, 2] ** 2
    wobble = -0.05 * torch.sum(ω[:, :2] ** 2, dim=-1)
    total = track + 0.5 * turn + bounce + wobble
    return total, {
        "v_xy → cmd": track,
        "ω_z → cmd": 0.5 * turn,
        "|v_z|²": bounce,
        "Σ ω_xy²": wobble,
    }
