"""The measured parts of training iterations, as JSON and as text for the terminal."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from envcoder_bench.core.profiling import EVALUATION, REST, RESULTS
from envcoder_bench.core.words import aligned, si, wrap
from envcoder_bench.shaping.kinds import STAGES, in_words

BAR = 10  # characters of a bar for 100 %
EIGHTHS = " ▏▎▍▌▋▊▉█"
# parts in the order of a control step
LABELS = {
    "physics": "physics",
    **{stage: f"shaping: {in_words(stage)}" for stage, kind in STAGES.items() if kind.shaper},
    "policy": "policy",
    "update": "update",
}


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


# as text


def render_breakdown(breakdown: Breakdown, width: int = 100) -> str:
    """Render a table of the parts, and the time between iterations.

    Lines have at most ``width`` characters (at least 80), except that paths and names are never broken.
    """
    b = breakdown
    of = f"iteration {b.first}" if b.first == b.last else f"iterations {b.first} to {b.last}"
    sizes = f"{b.groups} groups x {b.envs_per_group} environments, horizon {b.horizon}, {b.device}"
    lines = [*_wrap(f"profile of {of}: {sizes}", width), "", *_table(b)]
    speed = f"training makes {si(b.env_steps_per_second)} env-steps/s"
    if b.physics_share:
        bare = si(b.env_steps_per_second / b.physics_share)
        speed += f": {100 * b.physics_share:.0f} % of the speed of its bare physics ({bare})"
    notes = [speed, _between(b)]
    if b.host_seconds:
        notes.append("host: the Python thread's time; a part whose host time equals its time waits for launches")
    if not b.warmed_up:
        notes.append("the first iteration is among these and warms up: from 8 iterations on it is left out")
    return "\n".join([*lines, "", *(line for note in notes for line in _wrap(note, width))]) + "\n"


def _table(b: Breakdown) -> list[str]:
    head = ["", "ms/iteration", "ms/step", *(["host ms"] if b.host_seconds else []), "%"]
    rows = [
        [LABELS.get(name, name), *_cells(b, b.seconds[name], b.host_seconds.get(name, 0.0), name != "update")]
        for name in b.parts
    ]
    rows.append(["training", *_cells(b, b.training, sum(b.host_seconds.get(name, 0.0) for name in b.parts), True)])
    # bars are of the parts, and the total needs none
    bars = ["", *(bar(b.seconds[name] / b.training if b.training else 0.0) for name in b.parts), ""]
    head, *lines, total = aligned(
        [[*row, drawn] for row, drawn in zip([head, *rows], bars)], range(1, len(head)), False
    )
    rule = "-" * max(map(len, lines))
    return [head, rule, *lines, rule, total]


def _cells(b: Breakdown, seconds: float, host: float, in_rollout: bool) -> list[str]:
    each = 1e3 * seconds / b.iterations
    return [
        f"{each:.1f}",
        f"{each / b.horizon:.2f}" if in_rollout else "",  # the update is not part of a control step
        *([f"{1e3 * host / b.iterations:.1f}"] if b.host_seconds else []),
        f"{100 * seconds / b.training:.1f}" if b.training else "",
    ]


def bar(share: float, width: int = BAR) -> str:
    """Return a bar of ``share`` of ``width`` characters, to an eighth of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    return "█" * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")


def _between(b: Breakdown) -> str:
    """Describe the time between iterations, which is not in the table."""
    count = b.counts.get(EVALUATION, 0)
    each = 1e3 * b.seconds.get(EVALUATION, 0.0) / max(count, 1)
    evaluation = f"{count} evaluation{'s' if count > 1 else ''} of {each:.0f} ms" if count else "no evaluation"
    results = 1e3 * b.seconds.get(RESULTS, 0.0) / b.iterations
    return f"besides: {evaluation}, {results:.1f} ms per iteration for results and checkpoints"


def _wrap(text: str, width: int) -> list[str]:
    return wrap(text, width, then="  ").splitlines()
