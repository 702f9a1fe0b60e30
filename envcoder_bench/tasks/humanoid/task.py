"""The Humanoid runs towards a far target: state and fitness, with IsaacGymEnvs' names."""

from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.locomotion import Locomotion, fields, fitness_meaning

_LEG, _ARM = ("hip_x", "hip_z", "hip_y", "knee", "ankle_y", "ankle_x"), ("shoulder1", "shoulder2", "elbow")
_LEG_LINKS, _ARM_LINKS = ("thigh", "shin", "foot"), ("upper_arm", "lower_arm", "hand")
_DOFS = (
    "abdomen z, y, x; right leg (hip x, z, y, knee, ankle y, x), left leg; right arm (shoulder 1, 2, elbow), left arm"
)
FIELDS = {
    **fields(_DOFS, "right_foot, left_foot", 21, 16, 2),
    "angular_velocity_scale": Field(
        None, "s/rad", "observation scale of the torso's angular velocity", "cfg.env.angularVelocityScale"
    ),
}


class Humanoid(Locomotion):
    """Twenty-one joints with springs; motors of 22.5 to 135 N m."""

    name = "Humanoid"
    model = "humanoid.xml"
    dof_names = (
        *(f"abdomen_{axis}" for axis in "zyx"),
        *(f"{side}_{joint}" for side in ("right", "left") for joint in _LEG),
        *(f"{side}_{joint}" for side in ("right", "left") for joint in _ARM),
    )
    body_names = (
        *("torso", "head", "lower_waist", "pelvis"),
        *(f"{side}_{link}" for side in ("right", "left") for link in _LEG_LINKS),
        *(f"{side}_{link}" for side in ("right", "left") for link in _ARM_LINKS),
    )
    sensor_names = ("right_foot", "left_foot")
    start_height = 1.34
    fitness_meaning = fitness_meaning("0.8 m")
    fields = FIELDS
