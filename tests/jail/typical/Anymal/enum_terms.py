"""Reward terms are members of an Enum; the weights are looked up by member."""
import enum
from collections import OrderedDict
from typing import Dict

import torch


class Term(enum.Enum):
    FORWARD = "forward"
    UPRIGHT = "upright"
    EFFORT = "effort"
    SMOOTH = "smooth"

    @property
    def weight(self) -> float:
        return _WEIGHTS[self]


_WEIGHTS = {
    Term.FORWARD: 2.0,
    Term.UPRIGHT: 0.3,
    Term.EFFORT: -5e-5,
    Term.SMOOTH: -0.002,
}


def _term(kind: Term, s: Dict[str, torch.Tensor]) -> torch.Tensor:
    if kind is Term.FORWARD:
        err = (s["commands"][:, 0] - s["root_states"][:, 7]).abs()
        return torch.exp(-4.0 * err)
    if kind is Term.UPRIGHT:
        qx, qy = s["root_states"][:, 3], s["root_states"][:, 4]
        return 1.0 - 2.0 * (qx ** 2 + qy ** 2)
    if kind is Term.EFFORT:
        return (s["torques"] ** 2).sum(dim=-1)
    if kind is Term.SMOOTH:
        return (s["dof_vel"] ** 2).mean(dim=-1)
    raise NotImplementedError(f"unknown term {kind!r}")


def compute_reward(state_dict):
    parts = OrderedDict()
    for kind in Term:
        parts[kind.value] = kind.weight * _term(kind, state_dict)
    reward = sum(parts.values())
    return reward, dict(parts)
