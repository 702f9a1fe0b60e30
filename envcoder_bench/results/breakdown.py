"""The measured parts of training iterations and the cost of candidates' functions, and both as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from envcoder_bench.core.profiling import EVALUATION, REST, RESULTS
from envcoder_bench.shaping.kinds import STAGES, in_words

# parts in the order of a control step
LABELS = {
    "physics": "physics",
    **{stage: f"shaping: {in_words(stage)}" for stage, kind in STAGES.items() if kind.shaper},
    "policy": "policy",
    "update": "update",
}


@dataclass
class CandidateCost:
    """The cost of a candidate's functions.

    Attributes:
        microseconds: by kind, the duration of one eager call.
        runs: by kind, how the run calls the function: ``compiled``, ``CUDA graph`` or ``Python``.
        why: for the slowest candidates, the lines that prevent compilation.
    """

    name: str
    microseconds: dict[str, float]
    runs: dict[str, str]
    why: str = ""

    @property
    def compiled(self) -> bool:
        """Whether all functions are compiled."""
        return set(self.runs.values()) <= {"compiled"}

    @property
    def sort_key(self) -> tuple[float, float]:
        """Time of the functions called from Python, which cost the run this time at every step; time of all."""
        called = sum(us for kind, us in self.microseconds.items() if self.runs.get(kind) == "Python")
        return called, sum(self.microseconds.values())


@dataclass(frozen=True)
class Breakdown:
    """The measurements of a profile.

    Attributes:
        groups, envs_per_group, horizon: size of a rollout.
        first, last: the measured iterations.
        seconds: total time by part; parts that are not in LABELS are shown by their own names.
        host_seconds: on CUDA, the time of the Python thread by part; otherwise empty.
        counts: number of entries by part.
        warmed_up: whether the run's first iteration was left out.
        unmeasured: candidates that had failed, or that raised when their functions were timed.
        trace: file of the trace; empty if there is none.
        trace_note: the iterations in the trace, or why a trace is missing.
    """

    device: str
    groups: int
    envs_per_group: int
    horizon: int
    first: int
    last: int
    seconds: dict[str, float]
    host_seconds: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    warmed_up: bool = True
    candidates: Sequence[CandidateCost] = ()
    unmeasured: Sequence[str] = ()
    trace: str = ""
    trace_note: str = ""

    @property
    def iterations(self) -> int:
        return self.last - self.first + 1

    @property
    def parts(self) -> list[str]:
        """The parts of training, in the order of a control step."""
        others = [name for name in self.seconds if name not in LABELS and name not in (EVALUATION, RESULTS, REST)]
        return [name for name in (*LABELS, *others, REST) if name in self.seconds]

    @property
    def training(self) -> float:
        """Seconds of all parts of training."""
        return sum(self.seconds[name] for name in self.parts)

    @property
    def physics_share(self) -> float:
        """The speed of training as a fraction of the speed of its physics."""
        return self.seconds.get("physics", 0.0) / self.training if self.training else 0.0

    @property
    def env_steps_per_second(self) -> float:
        steps = self.groups * self.envs_per_group * self.horizon * self.iterations
        return steps / self.training if self.training else 0.0


def to_json(breakdown: Breakdown) -> str:
    """Return the measurements with derived shares and milliseconds per iteration and control step as JSON."""
    b = breakdown
    parts = [
        {
            "part": name,
            "ms_per_iteration": 1e3 * b.seconds[name] / b.iterations,
            "ms_per_step": 1e3 * b.seconds[name] / b.iterations / b.horizon,
            "percent": 100 * b.seconds[name] / b.training,
        }
        for name in b.parts
    ]
    derived: dict[str, Any] = {
        "parts": parts,
        "ms_per_iteration": 1e3 * b.training / b.iterations,
        "physics_share": b.physics_share,
        "env_steps_per_second": b.env_steps_per_second,
    }
    return json.dumps({**asdict(b), **derived}, indent=1)
