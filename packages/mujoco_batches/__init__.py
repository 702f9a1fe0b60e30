"""Batches of MuJoCo and MuJoCo Warp: scenes with many robots on the CPU and on CUDA, without anybody's API.

``physics/`` steps batches of one MjModel and computes their contacts, ``engine/`` simulates scenes with many robots,
``assets/`` reads robots and terrain, ``scene/`` describes scenes, ``compat/`` has the private parts of the libraries
below.
"""

from mujoco_batches.compat.mujoco_gl import import_without_opengl

__version__ = "0.1.0"

import_without_opengl()
