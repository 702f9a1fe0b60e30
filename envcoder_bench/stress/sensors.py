"""What candidates observe that a robot does not measure: it is known in simulation alone."""

from __future__ import annotations

from collections.abc import Collection

from envcoder_bench.run.prepare.groups import Group

# keys of the state and their columns, None for all; by what they are
_KNOWN_IN_SIMULATION: dict[str, tuple[tuple[str, range | None], ...]] = {
    "the base's position": (("root_states", range(0, 3)), (".root_link_pos_w", None), (".root_pos_w", None)),
    "the base's linear velocity": (
        ("root_states", range(7, 10)),
        *((name, None) for name in (".root_link_lin_vel_w", ".root_link_lin_vel_b", ".imu_lin_vel")),
        *((name, None) for name in (".root_lin_vel_w", ".root_lin_vel_b")),
    ),
    "heights of the ground": (
        *((name, None) for name in ("measured_heights", "terrain_levels", "terrain_types", "height.", ".ray_hits_w")),
    ),
    "forces of contacts": (
        ("contact_forces", None),
        ("vec_sensor_tensor", None),
        ("contact.", None),
        (".net_forces_w", None),
    ),
    "the place of the target": (("potentials", None), ("prev_potentials", None)),
}


def unmeasured(group: Group, of_terms: Collection[str] = ()) -> list[str]:
    """Return what the observation of a candidate reads and a robot does not measure, in words.

    Velocity and heights can be estimated, with errors that the simulation does not have. Of a function that is not
    compiled nothing is known but that.

    Args:
        of_terms: what the task's own terms read of it, for a function that returns them.
    """
    program = group.evaluation.programs.get("observation")
    if program is None:
        return ["not known: its observation is not compiled"]
    read = {(node.name, node.column) for node in program.nodes if node.op == "load"}
    terms = of_terms if any(name == "obs_buf" for name, _ in read) else ()
    found = {
        x for x, keys in _KNOWN_IN_SIMULATION.items() if any(_is_read(*key, *each) for key in keys for each in read)
    }
    return [meaning for meaning in _KNOWN_IN_SIMULATION if meaning in found or meaning in terms]


def _is_read(key: str, columns: range | None, name: str, column: int) -> bool:
    """Return whether a column of ``name`` is of ``key``, which may be its beginning or end, as of ``contact.feet``."""
    same = name == key or (key.endswith(".") and name.startswith(key)) or (key[0] == "." and name.endswith(key))
    return same and (columns is None or column in columns)
