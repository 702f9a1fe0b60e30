"""The Ant runs towards a far target: state and fitness, with IsaacGymEnvs' names."""

from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.locomotion import Locomotion, fields, fitness_meaning

FEET = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")
FIELDS = {
    **fields("hip and ankle of the legs front left, front right, back left, back right", ", ".join(FEET), 8, 9, 4),
    "joint_gears": Field(None, "N m", "the same as motor_efforts, (8,)", "sim.effort_limits"),
}


class Ant(Locomotion):
    """Four legs, each a hip that swings and an ankle that lifts, with 15 N m each."""

    name = "Ant"
    model = "ant.xml"
    dof_names = tuple(f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle"))
    body_names = ("torso", *(f"{foot[:-5]}_{link}" for foot in FEET for link in ("leg", "foot")))
    sensor_names = FEET
    start_height = 0.44
    fitness_meaning = fitness_meaning("0.31 m")
    fields = FIELDS
