"""A cart on a rail swings up a pole and balances it: fitness, with the state of Cartpole."""

import torch
from torch import Tensor

from envcoder_bench.tasks.cartpole.task import Cartpole


class CartpoleSwingup(Cartpole):
    """A driven joint, the cart's, and a passive joint, the pole's, which begins at any angle; without a goal."""

    name = "CartpoleSwingup"
    model = "cartpole_swingup.xml"
    fitness_meaning = (
        "height of the pole's tip, 0 hanging and 1 upright, averaged over the full episode while the cart is in its"
        " range; 0 to 1"
    )

    def ends(self) -> dict[str, Tensor]:
        return {"cart_pos at its range": self._off_range()}

    def fitness(self, state: dict[str, Tensor]) -> Tensor:
        height = 0.5 + 0.5 * torch.cos(state["pole_angle"])
        return height * (torch.abs(state["cart_pos"]) <= self.reset_dist)
