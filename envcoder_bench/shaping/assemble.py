"""Combination of a candidate's and a baseline's functions to the shaping of one group."""

from collections.abc import Sequence

from envcoder_bench.shaping.contract import Candidate, CandidateError, Shaping, nothing_asked
from envcoder_bench.shaping.kinds import ALIASES, KINDS, SECTION_TYPES, SHAPER_TYPES, STAGES, near_type, of_stage

__all__ = ["Shaping", "assemble"]


def assemble(candidate: Candidate, baseline: Candidate, shaper_types: Sequence[str] | None = None) -> Shaping:
    """Take the functions of ``shaper_types`` (None: all it defines) from the candidate, the rest from the baseline.

    A function of the candidate replaces the baseline's functions of the same stage: ``compute_torque`` and
    ``compute_dof_target`` replace each other.

    Raises:
        ValueError: a shaper type does not exist.
        CandidateError: the candidate defines none of the shaper types, or there is no reward or observation.
    """
    asked = [ALIASES.get(name, name) for name in (SHAPER_TYPES if shaper_types is None else shaper_types)]
    for name in asked:
        if name not in SHAPER_TYPES:
            listed = ", ".join(SHAPER_TYPES)
            raise ValueError(f"there is no shaper type {name!r}{near_type(name)}; there are {listed}")
    candidate_functions = {
        KINDS[name].stage: function for name, function in candidate.functions.items() if name in asked
    }
    if not candidate_functions:
        raise nothing_asked(asked, list(candidate.functions), candidate.file)
    combined = {**{KINDS[name].stage: function for name, function in baseline.functions.items()}, **candidate_functions}
    for stage, kind in STAGES.items():
        if kind.required and stage not in combined:
            wanted = " or ".join(of_stage(stage))
            message = f"needs {wanted}: neither it nor the baseline {baseline.name} defines one"
            raise CandidateError(message, candidate.file)
    stages = dict.fromkeys(KINDS[name].stage for name in SHAPER_TYPES)
    functions = {stage: combined[stage] for stage in stages if stage in combined}
    patches = {section: own for section, own in candidate.patches.items() if SECTION_TYPES[section] in asked}
    return Shaping(candidate.name, candidate.file, functions, patches=patches)
