"""Isaac Gym's ``torch_utils``: this package's tensor helpers, and the names that star imports expect beside them."""

import numpy as np  # noqa: F401
import torch

from envcoder_bench.torch_utils import *  # noqa: F403
from envcoder_bench.torch_utils import torch_rand_float


def torch_rand_sign(shape: tuple[int, int], device: str) -> torch.Tensor:
    """Draw -1 and 1 with equal probability: ``(rows, columns)``."""
    drawn = torch_rand_float(-1.0, 1.0, shape, device)
    return torch.where(drawn < 0.0, -torch.ones_like(drawn), torch.ones_like(drawn))
