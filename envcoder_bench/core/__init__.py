"""Code that every layer uses: groups, counter noise, errors, files, profiling. It imports no other layer."""

# here, because cli/ parses flags before torch is imported; a new one must pass the suite of tests/sim/backends.py
SIMULATORS = ("mujoco_cpu", "mujoco_warp")
