"""Check and repair a round's candidates, and record their results."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.run_log import muted
from envcoder_bench.core.words import without_folders
from envcoder_bench.results.logs import Course, Point
from envcoder_bench.results.metrics import counts, first
from envcoder_bench.results.rows import Result
from envcoder_bench.run.lint import Verdict
from envcoder_bench.run.prepare.groups import Group, prepare
from envcoder_bench.run.prepare.plan import MemoryPlanner, release
from envcoder_bench.run.spec import CandidateSource, RunSpec
from envcoder_bench.search.archive import (
    FAILED,
    FAILED_AT_LOAD,
    NO_CODE,
    OK,
    Archive,
    Attempt,
    Proposal,
    Proposer,
    noted,
)
from envcoder_bench.search.folder import Round, SearchFolder
from envcoder_bench.shaping.contract import Fault
from envcoder_bench.shaping.copies import Known
from envcoder_bench.tasks.base import UNTRAINED


class Checker:
    """Checks the candidates of one round as a run would, without training.

    Args:
        spec: the round's run; with ``untrusted`` candidates are checked in the jail.
        archive: attempts of earlier rounds; their copies and those of baselines are refused, see shaping/copies.py.
    """

    def __init__(self, folder: SearchFolder, spec: RunSpec, archive: Archive) -> None:
        self._folder = folder
        self._spec = replace(spec.changed(seeds=1), fitness=None)
        self._planner = MemoryPlanner(self._spec)
        cfg, everyone = spec.config, [*archive.baselines.values(), *archive.attempts]
        baseline = archive.baselines[cfg.baseline].source if cfg.baseline in archive.baselines else ""
        self._known = Known.of({a.name: a.source for a in everyone if a.source}, baseline, cfg.shaper_types)

    def faults(self, proposals: Sequence[Proposal]) -> dict[str, Fault]:
        """Write candidates to their files; return the faults of those that cannot be trained, by name."""
        self._folder.write_sources(proposals)
        faults: dict[str, Fault] = {}
        for proposal in proposals:
            fault = self._known.fault(proposal.name, proposal.source)
            if fault is not None:
                faults[proposal.name] = fault
            else:
                self._known.add(proposal.name, proposal.source)
        new = [
            CandidateSource(p.name, str(self._folder.candidate(p.name)), p.source)
            for p in proposals
            if p.name not in faults
        ]
        if new:
            with muted():  # warnings are shown when the candidate is trained
                groups, failed = prepare(replace(self._spec, sources=tuple(new)))
            faults.update(failed)
            faults.update(self._too_large(groups))
            for source in new:
                if source.name in faults:  # others may be repaired to this source
                    self._known.signatures.pop(source.name, None)
            release(self._spec.config.device)
        return {name: fault.without_folders() for name, fault in faults.items()}

    def _too_large(self, groups: Sequence[Group]) -> dict[str, Fault]:
        """Return faults of candidates that do not fit into memory alone, which would end the round for all."""
        faults = {}
        for group in groups:
            try:
                self._planner.plan([group])
            except UserError as error:
                faults[group.name] = Fault(str(error))
        return faults


def check_and_repair(
    number: int, proposals: Sequence[Proposal], proposer: Proposer, archive: Archive, checker: Checker, repairs: int
) -> Round:
    """Check a round's candidates, and have failed ones repaired at most ``repairs`` times.

    Replies without a candidate are repaired as well; requests without a reply are not, as they were sent repeatedly.
    """
    # what fails a check, and replies without code
    latest = {p.name: p for p in proposals}
    faults = checker.faults([p for p in proposals if p.source])
    faults.update({p.name: _no_code(p) for p in proposals if not p.source and p.reply})
    first = dict(faults)
    for _ in range(repairs):
        failures = [(latest[name], fault) for name, fault in faults.items()]
        answers = [p for p in proposer.repair(archive, failures) if p is not None] if failures else []
        for p in answers:
            if not p.source:
                latest[p.name] = replace(latest[p.name], note=f"its repair failed: {noted(p.fault, p.note)}")
        repaired = {p.name: p for p in answers if p.source}
        if not repaired:
            break
        latest.update(repaired)
        # repaired candidates are checked again; those without a repair keep their fault
        again = checker.faults(list(repaired.values()))
        faults = {name: again.get(name, faults[name]) for name in faults if name in again or name not in repaired}
    # what is trained, and what is not
    ready = [p for p in latest.values() if p.source and p.name not in faults]
    failed = [(p, FAILED_AT_LOAD, faults[p.name]) for p in latest.values() if p.source and p.name in faults]
    failed += [(p, NO_CODE, _no_code(p).without_folders()) for p in latest.values() if not p.source]
    return Round(number, ready, failed, {p.name: first[p.name] for p in ready if p.name in first})


def record_round(
    archive: Archive,
    round: Round,
    results: Sequence[Result] = (),
    points: Sequence[Point] = (),
    courses: Sequence[Course] = (),
    verdicts: Mapping[str, Verdict] = MappingProxyType({}),
) -> Archive:
    """Return the archive with a round's attempts, and new results of the baselines and of the best so far.

    Args:
        results, points, courses: results of the round's run; empty if no candidate could be trained.
        verdicts: on the rewards of its candidates, by name.
    """
    rows: dict[str, list[Result]] = {}
    for row in results:
        rows.setdefault(row.candidate, []).append(row)
    # candidates of earlier rounds that trained again, as yardsticks
    attempts = [_measured(attempt, rows.get(attempt.name, [])) for attempt in archive.attempts]
    new = [_measured(_attempt(round.number, p), rows[p.name]) for p in round.ready]
    judged = [(attempt, verdicts.get(attempt.name, Verdict())) for attempt in new]
    new = [replace(attempt, remarks=tuple(verdict.remarks), same_as=verdict.same_as) for attempt, verdict in judged]
    new += [_attempt(round.number, p, status, fault) for p, status, fault in round.failed]
    baselines = {name: _baseline(attempt, rows.get(name, [])) for name, attempt in archive.baselines.items()}
    untrained = archive.untrained
    if UNTRAINED in rows:
        untrained = _baseline(untrained or Attempt(UNTRAINED, 0, ""), rows[UNTRAINED])
    seeds = {row.seed for of_candidate in rows.values() for row in of_candidate}

    def with_course(attempt: Attempt) -> Attempt:
        """Return the attempt with what this run noted of it, of seeds that count in its fitness."""
        seen, counted = ({x.seed for x in attempt.points}, set(attempt.by_seed))
        new_points = [
            x
            for x in points
            if x.candidate == attempt.name and x.seed not in seen and (not counted or x.seed in counted)
        ]
        new_courses = [x for x in courses if x.candidate == attempt.name and x.seed in counted]
        of_before = [x for x in attempt.courses if x.seed not in {new.seed for new in new_courses}]
        return replace(attempt, points=(*attempt.points, *new_points), courses=(*of_before, *new_courses))

    return replace(
        archive,
        attempts=[with_course(a) for a in (*attempts, *sorted(new, key=lambda a: int(a.name.split("_")[1])))],
        baselines={name: with_course(baseline) for name, baseline in baselines.items()},
        untrained=untrained,
        seeds={**archive.seeds, round.number: tuple(sorted(seeds))},
    )


def record_again(archive: Archive, results: Sequence[Result]) -> Archive:
    """Return the archive with further results of its attempts, which count once however often they are recorded."""
    rows: dict[str, list[Result]] = {}
    for row in results:
        rows.setdefault(row.candidate, []).append(row)
    return replace(archive, attempts=[_measured(attempt, rows.get(attempt.name, [])) for attempt in archive.attempts])


def _attempt(number: int, proposal: Proposal, status: str = OK, fault: Fault | None = None) -> Attempt:
    same = ("name", "source", "parents", "origin", "left_out", "term", "factor")
    note = without_folders(proposal.note)
    return Attempt(**{key: getattr(proposal, key) for key in same}, round=number, status=status, fault=fault, note=note)


def _measured(attempt: Attempt, rows: Sequence[Result]) -> Attempt:
    """Return the attempt with the rows of one run; it fails if a seed failed or has no fitness."""
    lost = [row for row in rows if not row.measured]
    if lost:
        status = FAILED_AT_LOAD if all(row.status == FAILED_AT_LOAD for row in rows) else FAILED
        return replace(attempt, status=status, fitness=None, fault=_fault(lost[0]))
    stopped_at = max((row.stopped_at for row in rows), default=0)
    if stopped_at and attempt.by_seed:
        return attempt  # one of the best so far: its results of whole trainings stay valid
    return _with(replace(attempt, stopped_at=stopped_at), rows) if rows else attempt


def _baseline(baseline: Attempt, rows: Sequence[Result]) -> Attempt:
    """Return the baseline with the rows of one run; results of other seeds and rounds stay valid if a seed failed."""
    measured = [row for row in rows if row.measured]
    if measured:
        return _with(replace(baseline, status=OK, fault=None), measured)
    if rows and baseline.fitness is None:
        return replace(baseline, status=FAILED, fault=_fault(rows[0]))
    return baseline


def _with(attempt: Attempt, rows: Sequence[Result]) -> Attempt:
    rows = [row for row in rows if row.seed not in attempt.by_seed]  # a resumed search records a run again
    if not rows:
        return attempt
    length = math.fsum(row.episode_length for row in rows) / len(rows)
    low, high = rows[0].fitness_ci_low, rows[0].fitness_ci_high
    over_episodes = None if math.isnan(low) or math.isnan(high) else (low, high)
    ended, hacked = counts([attempt.ended, *(row.ended for row in rows)], []), first([x.hacked for x in rows], [])
    attempt = replace(
        attempt, episode_length=length, over_episodes=over_episodes, ended=ended, hacked=hacked or attempt.hacked
    )
    return attempt.measured_again({row.seed: row.fitness for row in rows})


def _fault(row: Result) -> Fault:
    return Fault("it has no fitness") if row.fault is None else row.fault.without_folders()


def _no_code(proposal: Proposal) -> Fault:
    return proposal.fault or Fault("", kind="no code")
