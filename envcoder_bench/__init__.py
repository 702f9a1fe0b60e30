"""Rank environment-shaping candidates for robot RL in one process: one simulation, one policy per candidate."""

__version__ = "0.1.0"
