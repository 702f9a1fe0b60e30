"""From a candidate and a baseline to the functions that shape one group."""

from __future__ import annotations

from typing import Sequence

from envcoder_bench.shaping.contract import (
    ACTION_TYPES,
    ALIASES,
    DOF_TARGET,
    GOAL,
    INITIAL_STATE,
    OBSERVATION,
    REWARD,
    SHAPER_TYPES,
    TERMINAL,
    TORQUE,
    Candidate,
    CandidateError,
    CandidateFunction,
    Shaping,
    near_type,
    nothing_asked,
)

__all__ = ["Shaping", "assemble"]


def assemble(candidate: Candidate, baseline: Candidate, shaper_types: Sequence[str] | None = None) -> Shaping:
    """Take the functions of ``shaper_types`` (None: all it defines) from the candidate, the rest from the baseline.

    ``compute_torque`` and ``compute_dof_target`` do one thing: whichever the candidate gives replaces either of the
    baseline's. Where neither gives one, the task's own drives act.

    Raises:
        ValueError: a shaper type does not exist.
        CandidateError: the candidate defines none of the shaper types, or there is no reward or observation.
    """
    asked = [ALIASES.get(name, name) for name in (SHAPER_TYPES if shaper_types is None else shaper_types)]
    for name in asked:
        if name not in SHAPER_TYPES:
            known = ", ".join(SHAPER_TYPES)
            raise ValueError(f"there is no shaper type {name!r}{near_type(name)}; there are {known}")
    own = {name: function for name, function in candidate.functions.items() if name in asked}
    if not own:
        raise nothing_asked(asked, list(candidate.functions), candidate.file)
    functions: dict[str, CandidateFunction] = dict(baseline.functions)
    if any(name in own for name in ACTION_TYPES):
        functions = {name: function for name, function in functions.items() if name not in ACTION_TYPES}
    functions.update(own)
    for name in (REWARD, OBSERVATION):
        if name not in functions:
            message = f"needs {name}: neither it nor the baseline {baseline.name} defines one"
            raise CandidateError(message, candidate.file)
    return Shaping(
        name=candidate.name,
        file=candidate.file,
        reward=functions[REWARD],
        observation=functions[OBSERVATION],
        action=functions.get(TORQUE) or functions.get(DOF_TARGET),
        initial_state=functions.get(INITIAL_STATE),
        goal=functions.get(GOAL),
        terminal=functions.get(TERMINAL),
    )
