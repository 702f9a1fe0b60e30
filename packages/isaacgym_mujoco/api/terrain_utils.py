"""Isaac Gym's ``terrain_utils``: the generators of ``mujoco_batches.terrain_utils``."""

from mujoco_batches.terrain_utils import *  # noqa: F403
