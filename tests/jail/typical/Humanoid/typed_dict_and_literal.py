"""Typing constructs: TypedDict, Literal, overloads by string, Protocol."""
from typing import Dict, Literal, Protocol, TypedDict, TypeVar, Generic, cast

import torch

T = TypeVar("T")
Kernel = Literal["exp", "inverse", "linear"]


class Spec(TypedDict):
    weight: float
    kernel: Kernel


class Term(Protocol):
    def __call__(self, state: Dict[str, torch.Tensor]) -> torch.Tensor: ...


class Box(Generic[T]):
    def __init__(self, content: T) -> None:
        self.content = content


SPECS: Dict[str, Spec] = {
    "height": {"weight": 0.5, "kernel": "exp"},
    "speed": {"weight": 1.0, "kernel": "linear"},
    "heading": cast(Spec, dict(weight=0.3, kernel="inverse")),
}


def apply(kind: Kernel, x: torch.Tensor) -> torch.Tensor:
    if kind == "exp":
        return torch.exp(-(x ** 2))
    elif kind == "inverse":
        return 1.0 / (1.0 + x ** 2)
    return x


def compute_reward(state_dict: Dict[str, torch.Tensor]):
    raw = Box({
        "height": state_dict["root_states"][:, 2] - 1.3,
        "speed": state_dict["root_states"][:, 7],
        "heading": 1.0 - state_dict["heading_vec"][:, 0],
    }).content
    parts = {name: SPECS[name]["weight"] * apply(SPECS[name]["kernel"], x) for name, x in raw.items()}
    return sum(parts.values()), parts
