"""Everything by keyword, with defaults, *args and **kwargs."""
import torch


def weighted(*terms, weights=None, **named):
    weights = weights or [1.0] * len(terms)
    out = sum(w * t for w, t in zip(weights, terms))
    for name, (w, t) in sorted(named.items(), key=lambda item: item[0]):
        out = out + w * t
    return out


def compute_reward(state_dict, /, *, near_weight=0.2, lift_weight=1.0):
    d = state_dict["cubeA_pos_relative"].norm(dim=-1)
    fingers = sum((state_dict[k] - state_dict["cubeA_pos"]).norm(dim=-1) for k in ("eef_lf_pos", "eef_rf_pos")) / 2
    height = (state_dict["cubeA_pos"][:, 2] - state_dict["table_height"]).clamp_min(0.0)
    return weighted(
        torch.exp(-8 * d), torch.exp(-8 * fingers),
        weights=[near_weight, near_weight / 2],
        lift=(lift_weight, torch.clamp(height / 0.1, max=1.0)),
        stacked=(16.0, state_dict["stacked"]),
    )
