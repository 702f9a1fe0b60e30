"""The tensor helpers for candidates: those of ``isaacgym.torch_utils``, drawing from the group's stream."""

from envcoder_bench.core import stream
from mujoco_batches import draws
from mujoco_batches.torch_utils import *  # noqa: F403

draws.uniform = stream.uniform  # which is torch.rand outside a stream
