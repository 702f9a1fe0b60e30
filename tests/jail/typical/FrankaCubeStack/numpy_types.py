"""Numpy for constants and annotations; checks types of its constants."""
from typing import Union
import numpy as np
import torch

ArrayLike = Union[np.ndarray, list]
WAYPOINTS: np.ndarray = np.linspace([0.0, 0.0, 1.1], [0.2, 0.1, 1.3], num=3).astype(np.float32)


def to_tensor(x: ArrayLike, like: torch.Tensor) -> torch.Tensor:
    if isinstance(x, np.ndarray):
        return torch.tensor(x.tolist(), dtype=like.dtype, device=like.device)
    return torch.tensor(x, dtype=like.dtype, device=like.device)


def compute_reward(state_dict):
    eef = state_dict["eef_pos"]
    points = to_tensor(WAYPOINTS, eef)
    distances = torch.cdist(eef.unsqueeze(1), points.unsqueeze(0).expand(eef.shape[0], -1, -1)).squeeze(1)
    nearest = distances.min(dim=-1).values
    weights = np.array([0.5, 0.3, 0.2])
    weights = weights / np.sum(weights)
    soft = (torch.softmax(-distances, dim=-1) * to_tensor(list(weights), eef)).sum(-1)
    return torch.exp(-nearest) + soft + state_dict["stacked"]
