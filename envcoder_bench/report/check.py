"""The result of a check of candidates, as a table for the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from envcoder_bench.report.table import GAP, MIN_NAME_WIDTH, render_by_place, shorten, wrap
from envcoder_bench.report.words import number

OK, FAILED, SKIPPED = "ok", "failed", "skipped"
_PREFIX = "compute_"

Spread = tuple[float, float, float]  # mean, min, max


@dataclass
class CandidateCheck:
    """The result of checking one candidate without training.

    Attributes:
        name: the candidate.
        status: OK, FAILED or SKIPPED (it defines none of the requested functions).
        baseline: whether it is a baseline of the task.
        defines: its functions that a run would use.
        unused: its functions that ``--shaper_types`` leaves out.
        obs_dim, action_dim: widths of the observation and the action; the baseline's for missing functions.
        not_compiled: ``FILE:LINE: in FUNCTION: REASON`` for each function that is not compiled.
        notes: further remarks, ``FILE:LINE: TEXT``.
        reward: mean, minimum and maximum of the reward in one step.
        components: the same for each component of the reward.
        form: how the components make up the reward, in words; empty if it is not known.
        error: the reason of the failure, with file and line.
    """

    name: str
    status: str = OK
    baseline: bool = False
    defines: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    obs_dim: int = 0
    action_dim: int = 0
    not_compiled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reward: Spread | None = None
    components: dict[str, Spread] = field(default_factory=dict)
    form: str = ""
    error: str = ""


def render_check(rows: Sequence[CandidateCheck], width: int, compiles: bool, num_envs: int) -> str:
    """Render a check in lines of at most ``width`` characters; places (FILE:LINE) are not broken.

    Args:
        rows: the results.
        width: columns of the terminal.
        compiles: whether functions are compiled at all.
        num_envs: environments per candidate in the checked step.
    """
    sections = ["\n".join(_table(rows, width, compiles))]
    if any(row.reward for row in rows):
        text = f"rewards: one step of {num_envs:,} environments with random actions"
        sections.append("\n".join([text, *_rewards(rows, width)]))
    forms = [wrap(f"{row.name}: {row.form}", width, "  ", "    ") for row in rows if row.form]
    if forms:
        sections.append("\n".join(["rewards and their components:", *forms]))
    sections += render_by_place(
        "not compiled, and slower for it", [(row.name, row.not_compiled) for row in rows], width
    )
    sections += render_by_place("notes", [(row.name, row.notes) for row in rows], width)
    failed = [(row.name, [row.error]) for row in rows if row.status == FAILED]
    sections += render_by_place(f"failed ({len(failed)} of {len(rows)})", failed, width)
    skipped = [row.name for row in rows if row.status == SKIPPED]
    if skipped:
        text = f"skipped, because they define none of the functions asked for: {', '.join(skipped)}"
        sections.append(wrap(text, width, then=""))
    return "\n\n".join(sections) + "\n"


def _table(rows: Sequence[CandidateCheck], width: int, compiles: bool) -> list[str]:
    good = [row.status == OK for row in rows]
    columns = [
        ["candidate", *(f"{row.name} (baseline)" if row.baseline else row.name for row in rows)],
        ["status", *(row.status for row in rows)],
        ["obs", *(str(row.obs_dim) if ok else "" for row, ok in zip(rows, good))],
        ["act", *(str(row.action_dim) if ok else "" for row, ok in zip(rows, good))],
        ["compiled", *(_compiled(row, compiles) if ok else "" for row, ok in zip(rows, good))],
        ["defines", *(_defines(row) for row in rows)],
    ]
    return _lay_out([column for column in columns if any(column[1:])], width)


def _rewards(rows: Sequence[CandidateCheck], width: int) -> list[str]:
    """Return a line for each candidate's reward, followed by one for each of its components."""
    lines: list[tuple[str, str, Spread]] = []
    for row in rows:
        if row.reward is not None:
            lines.append((row.name, "reward", row.reward))
            lines += [("", f"  {name}", spread) for name, spread in row.components.items()]
    columns = [
        ["candidate", *(name for name, _, _ in lines)],
        ["", *(part for _, part, _ in lines)],
        ["mean [least, greatest]", *_aligned([spread for _, _, spread in lines])],
    ]
    return _lay_out(columns, width)


def _lay_out(columns: list[list[str]], width: int) -> list[str]:
    """Return a table; its first column is shortened and its last wrapped to stay within ``width``."""
    columns = [list(column) for column in columns]
    others = sum(max(map(len, column)) + len(GAP) for column in columns[1:-1])
    last = max(map(len, columns[-1]))
    room = max(MIN_NAME_WIDTH, width - others - len(GAP) - min(last, 24))
    columns[0] = [shorten(text, room) for text in columns[0]]
    widths = [max(map(len, column)) for column in columns[:-1]]
    indent = sum(widths) + len(GAP) * len(widths)
    lines: list[str] = []
    for cells in zip(*columns):
        head = "".join(cell.ljust(n) + GAP for cell, n in zip(cells, widths))
        wrapped = wrap(cells[-1], max(24, width - indent), then="").splitlines() or [""]
        lines += [f"{head}{wrapped[0]}".rstrip(), *(" " * indent + line for line in wrapped[1:])]
    return [lines[0], "-" * min(width, max(map(len, lines))), *lines[1:]]


def _compiled(row: CandidateCheck, compiles: bool) -> str:
    if not compiles:
        return "off"
    count = len(row.defines)
    return "all" if not row.not_compiled else f"{count - len(row.not_compiled)} of {count}"


def _defines(row: CandidateCheck) -> str:
    names = [name.replace(_PREFIX, "") for name in row.defines]
    return ", ".join([*names, *(f"({name.replace(_PREFIX, '')}: not used)" for name in row.unused)])


def _aligned(spreads: Sequence[Spread | None]) -> list[str]:
    means = [number(spread[0]) if spread else "" for spread in spreads]
    room = max(map(len, means), default=0)
    ranges = [f" [{number(spread[1])}, {number(spread[2])}]" if spread else "" for spread in spreads]
    return [mean.rjust(room) + limits if limits else "" for mean, limits in zip(means, ranges)]
