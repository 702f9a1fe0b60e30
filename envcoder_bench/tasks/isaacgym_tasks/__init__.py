"""Tasks of Isaac Gym code: VecTasks of IsaacGymEnvs and LeggedRobots of legged_gym, driven by their own methods.

``find_source.py`` finds a task's class and config, ``probe.py`` learns its properties from a small simulation with a
run's config, ``spec.py`` makes a task class, and ``task_folder.py`` its baselines and YAML files. ``isaac_base.py`` and
``isaac_task.py`` adapt it, with ``driver.py`` for its step, ``resets.py`` for its episodes, ``groups.py``,
``scoring.py`` and ``checkpoint.py``. The importable ``isaacgym`` simulates: NVIDIA's if it is installed, else this
project's implementation on MuJoCo.
"""
