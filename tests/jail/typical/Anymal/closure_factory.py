"""A factory makes reward functions; a list of closures is summed."""
import torch
from typing import Callable, List, Tuple

TermFn = Callable[[dict], torch.Tensor]


def make_tracking(index: int, sigma: float) -> TermFn:
    def term(state):
        error = state["commands"][:, index] - state["root_states"][:, 7 + index]
        return torch.exp(-(error ** 2) / sigma)

    return term


def make_penalty(key: str, power: int = 2) -> TermFn:
    return lambda state: state[key].abs().pow(power).sum(dim=-1)


TERMS: List[Tuple[str, float, TermFn]] = [
    ("track_x", 1.0, make_tracking(0, 0.25)),
    ("track_y", 0.5, make_tracking(1, 0.25)),
    ("torque", -1e-5, make_penalty("torques")),
    ("velocity", -1e-3, make_penalty("dof_vel", power=1)),
]


def compute_reward(state_dict):
    components = {name: weight * fn(state_dict) for name, weight, fn in TERMS}
    names, values = zip(*components.items())
    reward = torch.stack(values, dim=-1).sum(dim=-1)
    return reward, dict(zip(names, values))
