"""Spot tracks velocity commands on a grid of terrains."""

from envcoder_bench.tasks.terrain_locomotion import TerrainLocomotion, fields

LEGS = ("fl", "fr", "hl", "hr")
BODIES = ("body", *(f"{leg}_{link}" for leg in LEGS for link in ("hip", "uleg", "lleg")))
SCAN_X = tuple(0.1 * k for k in range(-8, 9))
SCAN_Y = tuple(0.1 * k for k in range(-5, 6))


class SpotTerrain(TerrainLocomotion):
    """Spot; the height scan has 17 by 11 points under the base, 0.1 m apart."""

    name = "SpotTerrain"
    model = "spot.xml"
    dof_names = tuple(f"{leg}_{joint}" for leg in LEGS for joint in ("hx", "hy", "kn"))
    body_names = BODIES
    scan_x, scan_y = SCAN_X, SCAN_Y
    fields = fields(
        "legs fl, fr, hl, hr, each hx, hy, kn",
        BODIES,
        "uleg",
        "lleg",
        "x of -0.8 to 0.8 m, for each of them y of -0.5 to 0.5 m, every 0.1 m",
        len(SCAN_X) * len(SCAN_Y),
    )
