"""Batches of MuJoCo and MuJoCo Warp: scenes with many robots on the CPU and on CUDA.

``physics/`` steps batches of one MjModel and computes their contacts. ``engine/`` simulates scenes with many robots.
``assets/`` reads robots and terrain. ``scene/`` describes scenes. ``compat/`` uses private parts of other libraries.
"""

from mujoco_batches.compat.mujoco_gl import import_without_opengl

__version__ = "0.1.0"

import_without_opengl()
