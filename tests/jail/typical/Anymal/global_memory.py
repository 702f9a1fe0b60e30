"""Penalizes changes of action, with the last action kept in a global."""
import torch

_last_actions = None


def compute_reward(state_dict):
    global _last_actions
    actions = state_dict["actions"]
    if _last_actions is None or _last_actions.shape != actions.shape:
        _last_actions = torch.zeros_like(actions)
    action_rate = torch.sum(torch.square(actions - _last_actions), dim=-1)
    _last_actions = actions.clone()
    error = torch.sum(torch.square(state_dict["commands"][:, :2] - state_dict["root_states"][:, 7:9]), dim=1)
    return torch.exp(-error / 0.25) - 0.01 * action_rate
