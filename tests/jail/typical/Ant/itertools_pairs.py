"""Encourages diagonal leg pairs to move together, with itertools."""
import itertools
from collections import Counter, namedtuple

import torch

Leg = namedtuple("Leg", ["name", "hip", "ankle"])
LEGS = [Leg("front_left", 0, 1), Leg("front_right", 2, 3), Leg("back_left", 4, 5), Leg("back_right", 6, 7)]
DIAGONAL = {frozenset(("front_left", "back_right")), frozenset(("front_right", "back_left"))}
assert Counter(l.name.split("_")[0] for l in LEGS) == {"front": 2, "back": 2}


def compute_reward(state_dict):
    q = state_dict["dof_pos"]
    sync = torch.zeros(q.shape[0], device=q.device)
    for a, b in itertools.combinations(LEGS, 2):
        difference = (q[:, a.hip] - q[:, b.hip]) ** 2 + (q[:, a.ankle] - q[:, b.ankle]) ** 2
        sign = -1.0 if frozenset((a.name, b.name)) in DIAGONAL else 0.25
        sync = sync + sign * torch.tanh(difference)
    running = list(itertools.accumulate([1.0, 0.5, 0.25]))
    speed = state_dict["root_states"][:, 7]
    return running[-1] * speed + 0.1 * sync, {"speed": speed, "sync": sync}
