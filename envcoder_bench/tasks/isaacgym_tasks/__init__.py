"""Isaac Gym tasks as tasks: a VecTask of IsaacGymEnvs, or a LeggedRobot of legged_gym, driven piece by piece.

``source.py`` finds a task's class and config, ``probe.py`` learns its facts from a small simulation, ``spec.py`` makes
a task's folder of them, and ``task.py`` drives it. Whatever is importable as ``isaacgym`` simulates: this project's
implementation on MuJoCo, or another one where it is installed.
"""
