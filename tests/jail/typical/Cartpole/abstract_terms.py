"""Reward terms as subclasses of an abstract base class."""
from abc import ABC, abstractmethod
import torch


class RewardTerm(ABC):
    name: str = "term"

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.weight = weight

    @abstractmethod
    def compute(self, state) -> torch.Tensor:
        ...

    def __call__(self, state):
        return self.weight * self.compute(state)


class Alive(RewardTerm):
    name = "alive"

    def compute(self, state):
        return (state["pole_angle"].abs() < 0.5).to(state["pole_angle"].dtype)


class Centered(RewardTerm):
    name = "centered"

    def __init__(self, weight, sigma):
        super().__init__(weight)
        self.sigma = sigma

    def compute(self, state):
        return torch.exp(-((state["cart_pos"] / self.sigma) ** 2))


TERMS = [Alive(1.0), Centered(0.5, sigma=1.0)]


def compute_reward(state_dict):
    values = {t.name: t(state_dict) for t in TERMS}
    return sum(values.values()), values


def compute_done(state_dict):
    too_far = state_dict["cart_pos"].abs() > state_dict["reset_dist"]
    fallen = state_dict["pole_angle"].abs() > torch.pi / 2
    return torch.logical_or(too_far, fallen).long()
