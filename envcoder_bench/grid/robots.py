"""The robots of a grid."""

from dataclasses import dataclass
from pathlib import Path

import envcoder_bench
from envcoder_bench.core.errors import UserError, near_matches

_TASKS = Path(envcoder_bench.__file__).parent / "tasks"


@dataclass(frozen=True)
class Robot:
    """A robot.

    Attributes:
        model: its MJCF file.
        legs, joints: names of its legs and of a leg's joints; a joint is ``<leg>_<joint>``.
        stance: for each leg the angles where the action is 0, rad.
        height: of the base in that stance on flat ground, m.
        tasks: this package's tasks that have it.
    """

    name: str
    model: Path
    legs: tuple[str, ...]
    joints: tuple[str, ...]
    stance: tuple[tuple[float, ...], ...]
    height: float
    tasks: tuple[str, ...] = ()

    @property
    def dof_names(self) -> list[str]:
        """The joints in the model's order."""
        return [f"{leg}_{joint}" for leg in self.legs for joint in self.joints]


ROBOTS = {
    "spot": Robot(
        "spot",
        _TASKS / "spot_terrain" / "spot.xml",
        ("fl", "fr", "hl", "hr"),
        ("hx", "hy", "kn"),
        ((0.1, 0.9, -1.5), (-0.1, 0.9, -1.5), (0.1, 1.1, -1.5), (-0.1, 1.1, -1.5)),
        0.519,
        ("SpotTerrain",),
    ),
    "anymal_c": Robot(
        "anymal_c",
        _TASKS / "anymal" / "anymal_c.xml",
        ("LF", "LH", "RF", "RH"),
        ("HAA", "HFE", "KFE"),
        ((0.03, 0.4, -0.8), (0.03, -0.4, 0.8), (-0.03, 0.4, -0.8), (-0.03, -0.4, 0.8)),
        0.543,
        ("Anymal", "AnymalTerrain"),
    ),
}


def find_robot(name: str) -> Robot:
    """Return a robot. Raises UserError with near matches."""
    if name not in ROBOTS:
        raise UserError(f"unknown robot '{name}'{near_matches(name, ROBOTS)}; there are {', '.join(ROBOTS)}")
    return ROBOTS[name]
