"""ANYmal C tracks velocity commands on flat ground: state, drives and fitness, with IsaacGymEnvs' names."""

from envcoder_bench.tasks import legged
from envcoder_bench.tasks.base import Field
from envcoder_bench.tasks.legged import LeggedTask

LEGS = ("LF", "LH", "RF", "RH")  # Isaac Gym's order
BODIES = ("base", *(f"{leg}_{link}" for leg in LEGS for link in ("HIP", "THIGH", "SHANK")))
FIELDS = legged.fields(
    "legs LF, LH, RF, RH, each HAA, HFE, KFE",
    BODIES,
    "THIGH",
    "SHANK",
    commands=Field((3,), "m/s, m/s, rad/s", "goal: velocity forward, to the left, and turning left; base frame", 0.0),
    yaw_range=legged.command_range("rad/s", "turning command", "yaw"),
)


class Anymal(LeggedTask):
    """Twelve joints with PD drives; commands are forward, sideways and turning velocity in the base frame."""

    name = "Anymal"
    model = "anymal_c.xml"
    dof_names = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("HAA", "HFE", "KFE"))
    body_names = BODIES
    config_keys = (*legged.CONFIG_KEYS, *(f"{legged.STANCE}.{dof}" for dof in dof_names))
    ignored_keys = (  # these are shaping: human.py has them
        "env.learn.linearVelocityXYRewardScale",
        "env.learn.angularVelocityZRewardScale",
        "env.learn.torqueRewardScale",
    )
    fitness_meaning = legged.fitness_meaning()
    fields = FIELDS
