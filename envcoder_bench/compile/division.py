"""Division of programs among kernels: new ones, and those that this process has already compiled."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from envcoder_bench.compile.c_code import CCode

PROGRAMS_PER_KERNEL = 16  # fewer need more launches; with more, more are recompiled when one changes
MAX_LINES = 3_000  # of a kernel: compilation grows faster than they do; a longer program has a kernel of its own
MOST_KERNELS = 4  # times as many as new ones would be: more launches take longer than a compilation saves


class GroupProgram(NamedTuple):
    """One group's program, and the seed of its random numbers."""

    group: int
    seed: int
    code: CCode


class KernelPrograms(NamedTuple):
    """What a kernel holds.

    Attributes:
        codes: its programs, of which some may not be needed.
        jobs: for each program, the groups that have it.
    """

    codes: list[CCode]
    jobs: list[list[GroupProgram]]


Jobs = dict[Hashable, list[GroupProgram]]  # by program


def program_key(code: CCode) -> tuple[Hashable, ...]:
    """Return what identifies a program: all but its constants, which are data."""
    return code.statements, code.state


def divide(jobs: Sequence[GroupProgram], known: Sequence[Sequence[CCode]]) -> list[KernelPrograms]:
    """Divide the different programs among kernels.

    Args:
        known: the programs of kernels that need no compilation. They are used where fewer new kernels remain, as for
            the survivors of a race, and are not many more than the new ones would be.
    """
    wanted: Jobs = {}
    for job in jobs:
        wanted.setdefault(program_key(job.code), []).append(job)
    new = _new_kernels(wanted)
    used, rest = _known_kernels(wanted, known)
    if used and len(rest) < len(new) and len(used) + len(rest) <= MOST_KERNELS * len(new):
        return used + rest
    return new


def alone(kernel: KernelPrograms) -> list[KernelPrograms]:
    """Return a kernel for each program of one that holds several."""
    if len(kernel.codes) == 1:
        return []
    return [KernelPrograms([code], [own]) for code, own in zip(kernel.codes, kernel.jobs) if own]


def _new_kernels(wanted: Jobs) -> list[KernelPrograms]:
    kernels: list[KernelPrograms] = []
    lines = MAX_LINES
    for own in wanted.values():
        size = own[0].code.statements.count("\n")
        if lines + size > MAX_LINES or len(kernels[-1].codes) == PROGRAMS_PER_KERNEL:
            kernels.append(KernelPrograms([], []))
            lines = 0
        kernels[-1].codes.append(own[0].code)
        kernels[-1].jobs.append(own)
        lines += size
    return kernels


def _known_kernels(wanted: Jobs, known: Sequence[Sequence[CCode]]) -> tuple[list[KernelPrograms], list[KernelPrograms]]:
    """Return the known kernels to use, those with the most wanted programs first, and new ones for the rest."""
    missing, used = dict(wanted), []
    count = {i: sum(program_key(code) in wanted for code in codes) for i, codes in enumerate(known)}
    for i in sorted((i for i in count if count[i]), key=lambda i: -count[i]):
        own = [missing.pop(program_key(code), []) for code in known[i]]
        if any(own):
            used.append(KernelPrograms(list(known[i]), own))
    return used, _new_kernels(missing)
