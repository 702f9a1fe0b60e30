"""Checks its inputs and says what was wrong with them."""
from typing import Any, Mapping

import torch


def _get(state: Mapping[str, Any], key: str, ndim: int) -> torch.Tensor:
    value = state[key]
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{key} must be a torch.Tensor, got {type(value).__name__}")
    if value.ndim != ndim:
        raise ValueError("%s must have %d dimensions, got shape %s" % (key, ndim, tuple(value.shape)))
    return value


def compute_observation(state_dict):
    root_states = _get(state_dict, "root_states", 2)
    dof_pos = _get(state_dict, "dof_pos", 2)
    dof_vel = _get(state_dict, "dof_vel", 2)
    contact = _get(state_dict, "contact_forces", 3)
    feet = contact[:, state_dict["feet_indices"], 2]
    obs = torch.cat(
        [
            root_states[:, 2:3],
            root_states[:, 3:7],
            root_states[:, 7:13],
            state_dict["commands"],
            dof_pos - state_dict["default_dof_pos"],
            0.05 * dof_vel,
            torch.tanh(feet / 100.0),
            state_dict["actions"],
        ],
        dim=-1,
    )
    assert obs.shape[0] == root_states.shape[0] and obs.ndim == 2, f"bad observation shape {obs.shape}"
    return obs.to(torch.float32)
