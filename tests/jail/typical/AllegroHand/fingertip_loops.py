"""Fingertip distances in loops, f-strings with format specifications in component names."""
import torch

FINGERS = ("index", "middle", "ring", "thumb")
WEIGHTS = dict(zip(FINGERS, (0.3, 0.3, 0.2, 0.2)))


def compute_reward(state_dict):
    tips = state_dict["fingertip_pos"]
    cube = state_dict["object_pos"].unsqueeze(1)
    distances = torch.norm(tips - cube, dim=-1)
    components = {}
    for k, finger in enumerate(FINGERS):
        components[f"{finger:_<7}{WEIGHTS[finger]:.1f}"] = torch.exp(-20.0 * distances[:, k])
    total = torch.zeros_like(distances[:, 0])
    for (name, value), weight in zip(components.items(), WEIGHTS.values()):
        total.add_(weight * value)
    total = total - 10.0 * (state_dict["object_pos"] - state_dict["goal_pos"]).norm(dim=-1)
    return total + 50.0 * state_dict["successes"].clamp(max=1.0), components
