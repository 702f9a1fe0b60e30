"""What ``isaacgym`` is after ``install()``: its modules, the recorded scene, and the objects that tasks create."""

from envcoder_bench.isaacgym import __implementation__

__all__ = ["__implementation__"]
