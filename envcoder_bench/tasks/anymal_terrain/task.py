"""ANYmal C tracks velocity commands on a grid of terrains, with IsaacGymEnvs' names."""

from envcoder_bench.tasks.terrain_locomotion import TerrainLocomotion, fields

LEGS = ("LF", "LH", "RF", "RH")  # Isaac Gym's order
BODIES = ("base", *(f"{leg}_{link}" for leg in LEGS for link in ("HIP", "THIGH", "SHANK")))
SCAN_X = tuple(0.1 * k for k in (-8, -7, -6, -5, -4, -3, -2, 2, 3, 4, 5, 6, 7, 8))
SCAN_Y = tuple(0.1 * k for k in (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5))


class AnymalTerrain(TerrainLocomotion):
    """ANYmal C; the height scan has 140 points, 0.2 to 0.8 m before and behind and 0.1 to 0.5 m beside the base."""

    name = "AnymalTerrain"
    model = "../anymal/anymal_c.xml"
    dof_names = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("HAA", "HFE", "KFE"))
    body_names = BODIES
    scan_x, scan_y = SCAN_X, SCAN_Y
    fields = fields(
        "legs LF, LH, RF, RH, each HAA, HFE, KFE",
        BODIES,
        "THIGH",
        "SHANK",
        "x of -0.8 to -0.2 and 0.2 to 0.8 m, for each of them y of -0.5 to -0.1 and 0.1 to 0.5 m, every 0.1 m",
        len(SCAN_X) * len(SCAN_Y),
    )
