"""Training of a run as a race: all groups to a rung, a decision, the survivors in new waves to the next rung.

Between two rungs a group's state is in a file of ``jobs/``, so that a race resumes in the middle of a rung.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import asdict, replace
from typing import Any, Sequence

from omegaconf import DictConfig

from envcoder_bench.core.files import write_atomic
from envcoder_bench.core.run_log import note
from envcoder_bench.report.episodes import read_episodes
from envcoder_bench.report.logs import RunLogs
from envcoder_bench.report.results import STOPPED, Result
from envcoder_bench.run import results
from envcoder_bench.run.checkpoint import GroupKey, SavedJob, load_job, pack_job, packed, save_checkpoint
from envcoder_bench.run.jobs import Job
from envcoder_bench.run.plan import MemoryPlanner, release, used_bytes
from envcoder_bench.run.prepare import Group
from envcoder_bench.run.race import LEAST, Rules, Stop, asked_rungs, decide
from envcoder_bench.run.session import Session, Wave, open_session, trainer_of
from envcoder_bench.run.training import ALONE, Training
from envcoder_bench.tasks.base import BASELINES

log = logging.getLogger(__name__)


class Race:
    """Trains from rung to rung in this process.

    Args:
        training: the remaining part of a run.
        planner: divides the survivors of a rung into waves.
    """

    def __init__(self, training: Training, planner: MemoryPlanner) -> None:
        self._training, self._planner = training, planner
        self._folder, self._cfg, self._saved, self._stop = training.folder, training.cfg, training.saved, training.stop
        self._parked: dict[GroupKey, Result] = {}  # rows of groups that wait at a rung

    def train(self, waves: list[list[Group]]) -> str | None:
        """Train all groups of the waves; return the place where training was stopped, or None at the end."""
        cfg, saved = self._cfg, self._saved
        groups = [group for wave in waves for group in wave]
        rungs = self._rungs(groups)
        ends = [*rungs, cfg.learning_iterations]
        for job in saved.jobs:
            rows = [Result(**row) for row in load_job(job.file)[1]["results"]]
            self._parked.update(((row.candidate, row.seed), row) for row in rows)
        logs = self._training.open_logs()
        try:
            for number, end in enumerate(ends, 1):
                alive = [group for group in groups if _key(group) not in saved.done]
                names = {group.name for group in alive if group.name not in BASELINES}
                self._training.reporter.rung_began(number, len(ends), len(names), self._count(groups))
                stopped_at = self._train_to(end, alive, logs)
                if stopped_at is not None:
                    return f"in rung {number} of {len(ends)} {stopped_at}" if rungs else stopped_at
                if end in rungs and end not in saved.decided:
                    self._decide(end, rungs, groups, logs)
        finally:
            logs.close()
        return None

    def _count(self, groups: Sequence[Group]) -> int:
        """Return the number of candidates that began to train."""
        begun = {row.candidate for row in self._saved.results if row.env_steps}
        return len(begun.union(group.name for group in groups).difference(BASELINES))

    def _rungs(self, groups: Sequence[Group]) -> list[int]:
        rungs, count = asked_rungs(self._cfg), self._count(groups)
        if count < LEAST:
            log.warning(
                "a race needs at least %s candidates, and there are %s: all are trained to the end", LEAST, count
            )
            return []
        if not rungs:
            log.warning("the training is too short for a rung, or has too few evaluation.points: nobody is stopped")
        return rungs

    # from one rung to the next

    def _train_to(self, end: int, groups: Sequence[Group], logs: RunLogs) -> str | None:
        """Train all groups to an iteration, wave by wave; return the place where training was stopped, or None."""
        saved = self._saved
        known = {_key(group): group for group in groups}
        interrupted = [known[key] for key in saved.groups]
        waiting = [group for key, group in known.items() if key not in saved.groups and self._reached(key) < end]
        waves = self._planner.plan(waiting, [interrupted] if interrupted else []).waves
        for number, wave in enumerate(waves, 1):
            if self._stop.by is not None:
                return f"before wave {number} of {len(waves)}"
            stopped_at = self._train_part(Wave(wave, number, len(waves), self._best(), end), logs)
            release(self._cfg.device)
            if stopped_at is not None:
                return stopped_at
        return None

    def _best(self) -> tuple[str, float] | None:
        """Return the best of the groups that wait at this rung or a former one, or are done."""
        rows = [row for row in (*self._parked.values(), *self._saved.results) if row.measured]
        best = max(rows, key=lambda row: row.fitness, default=None)
        return None if best is None else (best.candidate, best.fitness)

    def _train_part(self, wave: Wave, logs: RunLogs) -> str | None:
        """Train a wave to the next rung and save it; return the place where it was stopped, or None."""
        saved = self._saved
        keys = [_key(group) for group in wave.groups]

        def save(state: dict[str, Any]) -> None:
            save_checkpoint(self._folder.checkpoint, replace(saved, groups=keys, training=state, rows=logs.rows))

        with contextlib.ExitStack() as alone:
            alone.enter_context(ALONE)
            hooks = (None, self._training.reporter, self._stop)
            session = open_session(self._cfg, wave, logs, self._on_evaluation, save, *hooks)
            if saved.training is not None and keys == saved.groups:
                session.restore(saved.training, self._folder.checkpoint)
            elif any(self._latest(key) is not None for key in keys):
                session.join(self._parts(keys), self._folder.jobs)
            self._training.note_software()
            if self._cfg.device == "cpu":
                alone.close()
            saved.groups, saved.training = [], None
            session.train()
            if session.reached:
                self._park(session, logs)
                return None
        where = f"in wave {wave.number} of {wave.total} " if wave.total > 1 else ""
        return f"{where}after iteration {session.iteration} of {self._cfg.learning_iterations}"

    def _on_evaluation(self, session: Session) -> None:
        running = {(row.candidate, row.seed): row for row in results.trained(session)}
        self._training.evaluated(list({**self._parked, **running}.values()), used_bytes(self._cfg.device))

    def _save(self, seconds: float) -> None:
        """Save what is done, and delete states that are not needed any more."""
        self._training.save(self._saved.seconds + seconds, list(self._parked.values()))
        self._drop_superseded()

    def _park(self, session: Session, logs: RunLogs) -> None:
        """Save a wave that has reached a rung, or the end of its training."""
        saved, rows = self._saved, results.trained(session)
        finished = [row for row in rows if session.complete or row.failed]
        saved.results += finished
        saved.waves += 1
        saved.rows = logs.rows
        if session.complete:
            results.write_policies(self._folder, self._cfg, results.policies(session), saved.results)
        else:
            kept = [g for g, row in enumerate(rows) if not row.failed]
            parts = session.split()
            self._save_job(session.iteration, [rows[g] for g in kept], [parts[g] for g in kept])
        for row in finished:
            self._parked.pop((row.candidate, row.seed), None)
        self._save(session.seconds())  # last: from now on the wave is not trained again

    # states of groups between rungs

    def _save_job(self, iteration: int, rows: Sequence[Result], parts: Sequence[dict[str, Any]]) -> None:
        keys = [(row.candidate, row.seed) for row in rows]
        self._folder.jobs.mkdir(exist_ok=True)
        file = self._folder.job(Job(tuple(keys), 0.0).name)
        state = {"iteration": iteration, "results": [asdict(row) for row in rows], "parts": list(parts)}
        write_atomic(file, pack_job(keys, state, {}))
        self._saved.jobs = [job for job in self._saved.jobs if job.file != file]
        self._saved.jobs.append(SavedJob(keys, iteration, {}, file))
        self._parked.update(zip(keys, rows))

    def _latest(self, key: GroupKey) -> SavedJob | None:
        """Return the file with the latest state of a group."""
        own = [job for job in self._saved.jobs if key in job.groups]
        return max(own, key=lambda job: job.iteration, default=None)

    def _reached(self, key: GroupKey) -> int:
        job = self._latest(key)
        return 0 if job is None else job.iteration

    def _parts(self, keys: Sequence[GroupKey]) -> list[dict[str, Any]]:
        """Return the states of groups that wait at a rung."""
        files: dict[Any, list[GroupKey]] = {}
        for key in keys:
            job = self._latest(key)
            assert job is not None
            files.setdefault(job.file, []).append(key)
        parts: dict[GroupKey, dict[str, Any]] = {}
        for file, own in files.items():
            job, state = load_job(file)
            known = dict(zip(job.groups, state["parts"]))
            parts.update((key, known[key]) for key in own)
        return [parts[key] for key in keys]

    def _drop_superseded(self) -> None:
        """Delete files whose groups are all done, or have a later state."""
        saved, done = self._saved, self._saved.done
        for job in list(saved.jobs):
            if all(key in done or self._latest(key) is not job for key in job.groups):
                saved.jobs.remove(job)
                job.file.unlink(missing_ok=True)

    # at a rung

    def _decide(self, rung: int, rungs: Sequence[int], groups: Sequence[Group], logs: RunLogs) -> None:
        """Stop candidates; their rows and policies are those of the rung."""
        saved, done = self._saved, self._saved.done
        alive = [group for group in groups if group.name not in BASELINES and _key(group) not in done]
        names = list(dict.fromkeys(group.name for group in alive))
        logs.flush()
        history = {k: own for k, own in read_episodes(self._folder.episodes).items() if k <= rung}
        stops: list[Stop] = []
        if any(_key(group) not in history.get(rung, ()) for group in alive):
            log.warning("%s has lost rows of iteration %s: nobody is stopped", self._folder.episodes, rung)
        else:
            stops = decide(_rules(self._cfg), history, names, self._cfg.learning_iterations, len(rungs))
        reasons = {stop.candidate: f"rank {stop.rank} of {len(names)}: {stop.reason}" for stop in stops}
        stopped = [group for group in alive if group.name in reasons]
        for group in stopped:
            row = self._parked.pop(_key(group))
            saved.results.append(replace(row, status=STOPPED, stopped_at=rung, reason=reasons[group.name]))
        saved.decided.append(rung)
        if stopped:
            parts = self._parts([_key(group) for group in stopped])
            with ALONE:
                policies = ((_key(own), _export(self._cfg, own, part)) for own, part in zip(stopped, parts))
                results.write_policies(self._folder, self._cfg, policies, saved.results)
                release(self._cfg.device)
        self._save(0.0)  # last: from now on the rung is not decided again
        place = f"rung {list(rungs).index(rung) + 1} of {len(rungs) + 1}, iteration {rung}"
        message = f"{place}: {len(names) - len(reasons)} of {len(names)} candidates go on"
        log.info(message)
        note("\n".join([message, *(f"stopped {name}: {reason}" for name, reason in reasons.items())]))


def _key(group: Group) -> GroupKey:
    return group.name, group.seed


def _rules(cfg: DictConfig) -> Rules:
    race = cfg.race
    return Rules(race.rule, race.keep, race.level, race.reach)


def _export(cfg: DictConfig, group: Group, part: dict[str, Any]) -> bytes:
    """Return the content of the policy's file of a group that waits at a rung."""
    trainer = trainer_of(cfg, [group])
    trainer.load_state(trainer.join_states([part["trainer"]]))
    return packed(trainer.export(0))
