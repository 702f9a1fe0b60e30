"""The profile of training iterations as text for the terminal."""

from collections import Counter

from envcoder_bench.core.profiling import EVALUATION, RESULTS
from envcoder_bench.core.words import aligned, shorten, si, wrap
from envcoder_bench.results.breakdown import LABELS, Breakdown
from envcoder_bench.results.ranking import entrants

BAR = 10  # characters of a bar for 100 %
EIGHTHS = " ▏▎▍▌▋▊▉█"
NAME_WIDTH = 32
SLOWEST = 5  # candidates named


def render_breakdown(breakdown: Breakdown, width: int = 100) -> str:
    """Render a table of the parts, the time between iterations, and the slowest candidates.

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
    lines += ["", *(line for note in notes for line in _wrap(note, width))]
    lines += ["", *_candidates(b, width)] if b.candidates or b.unmeasured else []
    note = f"{b.trace} ({b.trace_note}): open it in https://ui.perfetto.dev" if b.trace else f"no trace: {b.trace_note}"
    return "\n".join([*lines, "", *_wrap(note, width)]) + "\n"


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


def _candidates(b: Breakdown, width: int) -> list[str]:
    """Describe the slowest candidates."""
    slowest = sorted(b.candidates, key=lambda c: c.sort_key, reverse=True)[:SLOWEST]
    head = f"slowest {len(slowest)} of {entrants(c.name for c in b.candidates)}"
    lines = _wrap(
        f"{head}: microseconds of one eager call of each function, the slowest of them; how the run calls them", width
    )
    name_width = min(NAME_WIDTH, max((len(c.name) for c in slowest), default=0))
    for c in slowest:
        kind = max(c.microseconds, key=lambda k: c.microseconds[k])
        total = sum(c.microseconds.values())
        text = f"{shorten(c.name, name_width).ljust(name_width)}  {total:8.0f}  "
        runs = ", ".join(f"{count} {way}" for way, count in Counter(c.runs.values()).items())
        text += f"{kind.replace('_', ' ')} {c.microseconds[kind]:.0f}; {runs}" + (f": {c.why}" if c.why else "")
        lines += _wrap(text, width, "  ")
    if b.unmeasured:
        names = ", ".join(shorten(name, NAME_WIDTH) for name in b.unmeasured[:SLOWEST])
        more = f" and {len(b.unmeasured) - SLOWEST} more" if len(b.unmeasured) > SLOWEST else ""
        lines += _wrap(f"not timed, because they failed: {names}{more}", width)
    return lines


def _wrap(text: str, width: int, indent: str = "") -> list[str]:
    return wrap(text, width, indent, f"{indent}  ").splitlines()
