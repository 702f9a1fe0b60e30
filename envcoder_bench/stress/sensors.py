"""What candidates observe that a robot does not measure: it is known in simulation alone."""

from __future__ import annotations

from envcoder_bench.run.prepare.groups import Group

# keys of the state and their columns, None for all; by what they are
_KNOWN_IN_SIMULATION: dict[str, tuple[tuple[str, range | None], ...]] = {
    "the base's position": (("root_states", range(0, 3)),),
    "the base's linear velocity": (("root_states", range(7, 10)),),
    "heights of the ground": (("measured_heights", None), ("terrain_levels", None), ("terrain_types", None)),
    "forces of contacts": (("contact_forces", None), ("vec_sensor_tensor", None)),
    "the place of the target": (("potentials", None), ("prev_potentials", None)),
}


def unmeasured(group: Group) -> list[str]:
    """Return what the observation of a candidate reads and a robot does not measure, in words.

    Velocity and heights can be estimated, with errors that the simulation does not have. Of a function that is not
    compiled nothing is known but that.
    """
    program = group.evaluation.programs.get("observation")
    if program is None:
        return ["not known: its observation is not compiled"]
    read = {(node.name, node.column) for node in program.nodes if node.op == "load"}
    return [
        meaning
        for meaning, keys in _KNOWN_IN_SIMULATION.items()
        if any(key == name and (columns is None or column in columns) for key, columns in keys for name, column in read)
    ]
