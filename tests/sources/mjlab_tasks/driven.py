"""A task of mjlab in steps, as the environment takes them."""

from term_driven import TermDriven, actions

CARTPOLE, GO1, G1 = "Mjlab-Cartpole-Balance", "Mjlab-Velocity-Flat-Unitree-Go1", "Mjlab-Velocity-Flat-Unitree-G1"
LIFT = "Mjlab-Lift-Cube-Yam"
ROUGH_GO1 = "Mjlab-Velocity-Rough-Unitree-Go1"
__all__ = ["CARTPOLE", "G1", "GO1", "LIFT", "ROUGH_GO1", "Driven", "actions"]


class Driven(TermDriven):
    """A task of mjlab with one of its simulations."""

    def __init__(self, name, size, groups=1, backend="mujoco", substeps=1, **options):
        config = {"sim": {"backend": backend, "substeps": substeps}}
        super().__init__(f"mjlab:{name}", size, groups, config=config, **options)
