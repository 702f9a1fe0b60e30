"""The source of the random numbers of ``torch_utils``."""

from collections.abc import Callable

import torch
from torch import Tensor

# uniform numbers in [0, 1) for a shape and the keyword device; a program that runs tasks may set another function
uniform: Callable[..., Tensor] = torch.rand
