"""Training of a run as a race: all groups to a rung, a decision, the survivors in new waves to the next rung.

Between two rungs a group's state is in a file of ``jobs/``, so that a race resumes in the middle of a rung.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from envcoder_bench.core.run_log import note
from envcoder_bench.report.logs import RunLogs, read_episodes
from envcoder_bench.report.results import OK, STOPPED
from envcoder_bench.report.words import counted
from envcoder_bench.run.folder import results
from envcoder_bench.run.folder.checkpoint import GroupKey, load_job, save_checkpoint
from envcoder_bench.run.prepare.plan import MemoryPlanner, Planned, release, used_bytes
from envcoder_bench.run.train.parked import ParkedGroups, rung_state
from envcoder_bench.run.train.race import LEAST, Rules, Stop, asked_rungs, contenders, decide
from envcoder_bench.run.train.session import Session
from envcoder_bench.run.train.session_start import open_session
from envcoder_bench.run.train.training import ALONE, Training
from envcoder_bench.run.train.wave import Wave
from envcoder_bench.tasks.base import BASELINES, UNTRAINED

log = logging.getLogger(__name__)


class RungTrainer(Protocol):
    """Trains waves to an iteration, and parks them there."""

    def train(self, waves: list[list[Any]]) -> str | None:
        """Return the place where training was stopped, or None when all waves have reached the iteration."""
        ...


class Race:
    """Trains from rung to rung.

    Args:
        training: the remaining part of a run.
        planner: divides the survivors of a rung into waves.
        make_trainer: returns the trainer of the waves to an iteration.
        further: groups of further seeds, of all candidates.
        devices: number of devices that train at a time.
    """

    def __init__(
        self,
        training: Training,
        planner: MemoryPlanner,
        make_trainer: Callable[[Training, ParkedGroups, int], RungTrainer],
        further: Sequence[Planned] = (),
        devices: int = 1,
    ) -> None:
        self._further = further
        self._training, self._planner, self._make_trainer, self._devices = training, planner, make_trainer, devices
        self._folder, self._cfg, self._saved = training.folder, training.cfg, training.saved
        self._parked = ParkedGroups(training.folder, training.saved)

    def train(self, waves: list[list[Any]]) -> str | None:
        """Train all groups of the waves; return the place where training was stopped, or None at the end."""
        groups: list[Planned] = [group for wave in waves for group in wave]
        rungs = self._rungs(groups)
        ends = [*rungs, self._cfg.learning_iterations]
        for number, end in enumerate(ends, 1):
            alive = [group for group in groups if _key(group) not in self._saved.done]
            names = {group.name for group in alive if group.name not in BASELINES}
            self._training.reporter.rung_began(number, len(ends), len(names), self._count(groups))
            stopped_at = self._train_to(end, alive)
            if stopped_at is not None:
                return f"in rung {number} of {len(ends)} {stopped_at}" if rungs else stopped_at
            if end in rungs and end not in self._saved.decided:
                self._decide(end, rungs, groups)
        stopped_at = self._train_to(ends[-1], self._afforded())
        return None if stopped_at is None else f"in the further seeds {stopped_at}"

    def _train_to(self, end: int, groups: Sequence[Planned]) -> str | None:
        planned = self._waves(end, groups) if groups else []
        stopped_at = self._make_trainer(self._training, self._parked, end).train(planned) if planned else None
        self._parked.drop_superseded()
        return stopped_at

    def _afforded(self) -> list[Planned]:
        """Return groups of as many further seeds as the race has saved env-steps for.

        They are of the candidates that cannot be told from the best by the seeds of the run, so that a resumed race
        finds the same ones.
        """
        cfg, seeds = self._cfg, results.seeds(self._cfg)
        rows = [row for row in self._saved.results if row.seed in seeds and row.candidate not in BASELINES]
        dropped = {row.candidate for row in rows if row.status != OK}
        saved = sum(cfg.learning_iterations - row.stopped_at for row in rows if row.status == STOPPED)
        names = list(dict.fromkeys(row.candidate for row in rows if row.candidate not in dropped))
        if not self._further or not saved or not names:
            return []
        final = read_episodes(self._folder.episodes).get(cfg.learning_iterations, {})
        own = contenders({key: x for key, x in final.items() if key[1] in seeds}, names, cfg.race.level)
        count = min(cfg.race.further_seeds, saved // cfg.learning_iterations // len(own)) if len(own) > 1 else 0
        others = f"{counted(len(own) - 1, 'candidate')} cannot be told from the best"
        log.info("%s; further seeds of each and of the best: %s", others, count)
        wanted = range(seeds.stop, seeds.stop + count)
        return [x for x in self._further if x.name in own and x.seed in wanted and _key(x) not in self._saved.done]

    def _count(self, groups: Sequence[Planned]) -> int:
        """Return the number of candidates that began to train."""
        begun = {row.candidate for row in self._saved.results if row.env_steps}
        return len(begun.union(group.name for group in groups).difference(BASELINES))

    def _rungs(self, groups: Sequence[Planned]) -> list[int]:
        rungs, count = asked_rungs(self._cfg), self._count(groups)
        if count < LEAST:
            message = "a race needs at least %s candidates, and there are %s: all are trained to the end"
            log.warning(message, LEAST, count)
            return []
        if not rungs:
            log.warning("the training is too short for a rung, or has too few evaluation.points: nobody is stopped")
        return rungs

    def _waves(self, end: int, groups: Sequence[Planned]) -> list[list[Any]]:
        """Divide groups that have not reached ``end`` into waves, after those that were interrupted."""
        known = {_key(group): group for group in groups}
        begun = [job.groups for job in self._saved.jobs if not job.parked and set(job.groups) <= set(known)]
        begun += [self._saved.groups] * bool(self._saved.groups)
        interrupted = {key for wave in begun for key in wave}
        waiting = [
            group for key, group in known.items() if key not in interrupted and self._parked.iteration(key) < end
        ]
        return self._planner.plan(waiting, [[known[key] for key in wave] for wave in begun], self._devices).waves

    def _decide(self, rung: int, rungs: Sequence[int], groups: Sequence[Planned]) -> None:
        """Stop candidates; their rows and policies are those of the rung."""
        saved, done = self._saved, self._saved.done
        alive = [group for group in groups if group.name not in BASELINES and _key(group) not in done]
        names = list(dict.fromkeys(group.name for group in alive))
        history = {k: own for k, own in read_episodes(self._folder.episodes).items() if 0 < k <= rung}
        stops: list[Stop] = []
        if any(_key(group) not in history.get(rung, ()) for group in alive):
            log.warning("%s has lost rows of iteration %s: nobody is stopped", self._folder.episodes, rung)
        else:
            race = self._cfg.race
            rules = Rules(race.rule, race.keep, race.level, race.reach)
            stops = decide(rules, history, names, self._cfg.learning_iterations, len(rungs))
        reasons = {stop.candidate: f"rank {stop.rank} of {len(names)}: {stop.reason}" for stop in stops}
        stopped = [group for group in alive if group.name in reasons]
        for group in stopped:
            row = self._parked.rows[_key(group)]
            saved.results.append(replace(row, status=STOPPED, stopped_at=rung, reason=reasons[group.name]))
        saved.decided.append(rung)
        keys = [_key(group) for group in stopped]
        results.write_policies(self._folder, self._cfg, zip(keys, self._parked.policies(keys)), saved.results)
        left = [row for key, row in self._parked.rows.items() if key not in saved.done]
        self._training.save(saved.seconds, left)  # last: from now on the rung is not decided again
        self._parked.drop_superseded()
        place = f"rung {list(rungs).index(rung) + 1} of {len(rungs) + 1}, iteration {rung}"
        message = f"{place}: {len(names) - len(reasons)} of {len(names)} candidates go on"
        log.info(message)
        for name, reason in reasons.items():
            note(f"stopped {name}: {reason}")


def _key(group: Planned) -> GroupKey:
    return group.name, group.seed


class SequentialRung:
    """Trains waves to ``end`` one after another in this process, and parks them there."""

    def __init__(self, training: Training, parked: ParkedGroups, end: int) -> None:
        self._training, self._parked, self._end = training, parked, end
        self._folder, self._cfg, self._saved, self._stop = training.folder, training.cfg, training.saved, training.stop

    def train(self, waves: list[list[Any]]) -> str | None:
        """Train all waves; return the place where training was stopped, or None when they have reached the end."""
        logs = self._training.open_logs()
        try:
            for number, wave in enumerate(waves, 1):
                if self._stop.by is not None:
                    return f"before wave {number} of {len(waves)}"
                stopped_at = self._train_wave(Wave(wave, number, len(waves), self._best(), self._end), logs)
                release(self._cfg.device)
                if stopped_at is not None:
                    return stopped_at
        finally:
            logs.close()
        return None

    def _best(self) -> tuple[str, float] | None:
        """Return the best of the groups that wait or are done."""
        rows = [
            row
            for row in (*self._parked.rows.values(), *self._saved.results)
            if row.measured and row.candidate != UNTRAINED
        ]
        best = max(rows, key=lambda row: row.fitness, default=None)
        return None if best is None else (best.candidate, best.fitness)

    def _train_wave(self, wave: Wave, logs: RunLogs) -> str | None:
        with contextlib.ExitStack() as alone:
            alone.enter_context(ALONE)
            self._training.evaluate_untrained(wave, logs, lambda: logs.rows, list(self._parked.rows.values()))
            session = self._open_session(wave, logs)
            if self._cfg.device == "cpu":
                alone.close()  # CUDA graphs are captured, which other threads must not disturb
            self._saved.groups, self._saved.training = [], None
            session.train()
            if session.reached:
                self._park(session, logs)
                return None
        where = f"in wave {wave.number} of {wave.total} " if wave.total > 1 else ""
        return f"{where}after iteration {session.iteration} of {self._cfg.learning_iterations}"

    def _open_session(self, wave: Wave, logs: RunLogs) -> Session:
        """Return a session of the wave in the state in which it was interrupted, or in which its groups wait."""
        saved = self._saved
        keys = [_key(group) for group in wave.groups]
        jobs = [job for job in saved.jobs if job.groups == keys and not job.parked]  # of a run on several devices

        def save(state: dict[str, Any]) -> None:
            save_checkpoint(self._folder.checkpoint, replace(saved, groups=keys, training=state, rows=logs.rows))
            for job in jobs:
                job.file.unlink(missing_ok=True)

        def on_evaluation(session: Session) -> None:
            running = {(row.candidate, row.seed): row for row in results.trained(session)}
            self._training.evaluated(list({**self._parked.rows, **running}.values()), used_bytes(self._cfg.device))

        kept, self._parked.session = self._parked.session, None
        if kept is not None and [_key(group) for group in kept.groups] == keys:  # nobody was stopped
            kept.go_on(wave, logs, on_evaluation, save)
            self._parked.forget()
            return kept
        del kept  # so that its memory is free for the next one
        release(self._cfg.device)
        session = open_session(self._cfg, wave, logs, on_evaluation, save, None, self._training.reporter, self._stop)
        if saved.training is not None and keys == saved.groups:
            session.restore(saved.training, self._folder.checkpoint)
        elif jobs:
            session.restore(load_job(jobs[0].file)[1], jobs[0].file)
            saved.jobs.remove(jobs[0])
        elif any(self._parked.iteration(key) for key in keys):
            session.join(*self._parked.states(keys))
        self._training.note_software()
        return session

    def _park(self, session: Session, logs: RunLogs) -> None:
        """Save a wave that has reached the end."""
        saved, rows = self._saved, results.trained(session)
        finished = [row for row in rows if session.complete or row.failed]
        if not session.complete:
            self._parked.add(rung_state(session))
            self._parked.session = session if session.wave.total == 1 else None
        policies = results.policies(session) if session.complete else ()
        saved.rows = logs.rows
        done = {(row.candidate, row.seed) for row in finished}
        running = [row for key, row in self._parked.rows.items() if key not in done]
        self._training.finish_wave(finished, policies, saved.seconds + session.seconds(), running)
