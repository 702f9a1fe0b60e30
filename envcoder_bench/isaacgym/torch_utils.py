"""Isaac Gym's ``torch_utils``: this package's tensor helpers, and the names that star imports expect beside them."""

import numpy as np  # noqa: F401
import torch  # noqa: F401

from envcoder_bench.torch_utils import *  # noqa: F403
