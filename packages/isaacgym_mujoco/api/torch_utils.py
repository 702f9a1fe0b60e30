"""Isaac Gym's ``torch_utils``: the helpers of ``mujoco_batches.torch_utils``."""

from mujoco_batches.torch_utils import *  # noqa: F403
