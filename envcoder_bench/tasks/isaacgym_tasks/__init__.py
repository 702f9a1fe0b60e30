"""Tasks of Isaac Gym code: VecTasks of IsaacGymEnvs and LeggedRobots of legged_gym, driven by their own methods.

``find_source.py`` finds a task's class and config, ``probe.py`` learns its properties from a small simulation with a
run's config, ``spec.py`` makes a task class, ``task_folder.py`` its baselines and YAML files, and ``isaac_task.py``
adapts it. The importable ``isaacgym`` simulates: NVIDIA's if it is installed, else this project's implementation on
MuJoCo.
"""
