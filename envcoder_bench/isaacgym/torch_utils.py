"""Isaac Gym's ``torch_utils``: this package's tensor helpers, and the names that star imports expect beside them."""

import numpy as np
import torch

from envcoder_bench.torch_utils import *  # noqa: F403

__all__ = [name for name in globals() if not name.startswith("_")]
assert np is not None and torch is not None  # star imports of task code take both from here
