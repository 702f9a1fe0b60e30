"""The seven functions a candidate may define, and how a fault in one is reported."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

REWARD = "compute_reward"
OBSERVATION = "compute_observation"
TORQUE = "compute_torque"
DOF_TARGET = "compute_dof_target"
INITIAL_STATE = "compute_initial_state"
GOAL = "compute_goal"
TERMINAL = "compute_terminal"

SHAPER_TYPES: Tuple[str, ...] = (REWARD, OBSERVATION, TORQUE, DOF_TARGET, INITIAL_STATE, GOAL, TERMINAL)
ALIASES: Dict[str, str] = {"compute_done": TERMINAL}
INITIAL_STATE_KEYS: Tuple[str, ...] = ("root_states", "dof_pos", "dof_vel")


@dataclass
class CandidateError(Exception):
    """A candidate's fault, as the results show it: where in the user's file, and what to change.

    ``str()`` gives ``FILE:LINE: in FUNCTION: MESSAGE`` with the parts that are known.
    """

    message: str
    file: str = ""
    line: Optional[int] = None
    function: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        where = f"in {self.function}: " if self.function else ""
        return f"{place}{where}{self.message}"
