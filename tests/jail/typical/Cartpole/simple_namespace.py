"""Keeps its settings in a SimpleNamespace and a defaultdict."""
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import torch

cfg = SimpleNamespace(angle_w=1.0, pos_w=0.05, vel_w=0.01, limit=float(np.deg2rad(12.0)))
weights = defaultdict(lambda: 1.0, {"angle": cfg.angle_w, "pos": -cfg.pos_w})


def compute_reward(pole_angle, pole_vel, cart_pos):
    terms = defaultdict(lambda: torch.zeros_like(pole_angle))
    terms["angle"] = torch.where(pole_angle.abs() < cfg.limit, torch.ones_like(pole_angle), torch.cos(pole_angle))
    terms["pos"] = cart_pos ** 2
    terms["vel"] = -cfg.vel_w * pole_vel ** 2
    total = sum(weights[k] * v for k, v in terms.items())
    return total, dict(terms)
