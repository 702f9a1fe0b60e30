"""The states of a race's groups between two rungs, in files of the folder ``jobs/``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.files import write_atomic
from envcoder_bench.report.results import Result
from envcoder_bench.run.folder.checkpoint import Checkpoint, GroupKey, SavedJob, load_job, pack_job, packed
from envcoder_bench.run.folder.results import trained
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.train.session import Session
from envcoder_bench.run.workers.jobs import Job


def rung_state(session: Session) -> dict[str, Any]:
    """Return the rows, states and policy files of a session's groups that have not failed, as plain data."""
    kept = [(g, row, part) for g, (row, part) in enumerate(zip(trained(session), session.split())) if not row.failed]
    return {
        "iteration": session.iteration,
        "results": [asdict(row) for _, row, _ in kept],
        "parts": [part for _, _, part in kept],
        "policies": [packed(session.trainer.export(g)) for g, _, _ in kept],
    }


def keys_of(state: dict[str, Any]) -> list[GroupKey]:
    """Return the groups of a ``rung_state``."""
    return [(row["candidate"], row["seed"]) for row in state["results"]]


class ParkedGroups:
    """Groups that wait at a rung.

    Attributes:
        rows: the last row of each group that waits.
        session: the session that trained them, if it was one for all of them in this process.
    """

    def __init__(self, folder: RunFolder, saved: Checkpoint) -> None:
        self._folder, self._saved = folder, saved
        self.rows: dict[GroupKey, Result] = {}
        self.session: Session | None = None
        # as in the files, of groups that were added here
        self._states: dict[GroupKey, dict[str, Any]] = {}
        self._policies: dict[GroupKey, bytes] = {}
        for job in sorted(saved.jobs, key=lambda job: job.iteration):
            if job.parked:
                self._add_rows(load_job(job.file)[1])

    def _add_rows(self, state: dict[str, Any]) -> None:
        rows = [Result(**row) for row in state["results"]]
        own = {(row.candidate, row.seed): row for row in rows}
        self.rows.update({key: row for key, row in own.items() if key not in self._saved.done})

    def add(self, state: dict[str, Any], content: bytes | None = None) -> None:
        """Save a ``rung_state``, as ``content`` if that was packed by another process."""
        keys = keys_of(state)
        self._folder.jobs.mkdir(exist_ok=True)
        file = self._folder.job(Job(tuple(keys), 0.0).name)
        write_atomic(file, pack_job(keys, state, {}) if content is None else content)
        self._saved.jobs = [job for job in self._saved.jobs if job.file != file]
        self._saved.jobs.append(SavedJob(keys, state["iteration"], {}, file, True))
        self._add_rows(state)
        if content is None:
            self._states.update(zip(keys, state["parts"]))
            self._policies.update(zip(keys, state["policies"]))

    def _latest(self, key: GroupKey) -> SavedJob | None:
        """Return the file with the latest state of a group."""
        own = [job for job in self._saved.jobs if job.parked and key in job.groups]
        return max(own, key=lambda job: job.iteration, default=None)

    def iteration(self, key: GroupKey) -> int:
        """Return the rung at which a group waits, 0 before the first."""
        job = self._latest(key)
        return 0 if job is None else job.iteration

    def states(self, keys: Sequence[GroupKey]) -> tuple[list[dict[str, Any]], Path]:
        """Return the states of groups that wait, and the folder of their files."""
        return self._take(keys, "parts", self._states), self._folder.jobs

    def policies(self, keys: Sequence[GroupKey]) -> list[bytes]:
        """Return the policy files of groups that wait."""
        return self._take(keys, "policies", self._policies)

    def forget(self) -> None:
        """Drop states and policies from memory; they are in the files."""
        self._states.clear()
        self._policies.clear()

    def _take(self, keys: Sequence[GroupKey], name: str, kept: dict[GroupKey, Any]) -> list[Any]:
        """Return what is saved of groups under a name, of those in ``kept`` from there."""
        files: dict[Path, list[GroupKey]] = {}
        for key in keys:
            job = self._latest(key)
            assert job is not None
            if key not in kept:
                files.setdefault(job.file, []).append(key)
        found: dict[GroupKey, Any] = {}
        for file, own in files.items():
            job, state = load_job(file)
            if name not in state:
                raise UserError(f"{file} has no {name}: resume the run with the version that wrote it")
            saved = dict(zip(job.groups, state[name]))
            found.update((key, saved[key]) for key in own)
        return [found[key] if key in found else kept.pop(key) for key in keys]

    def drop_superseded(self) -> None:
        """Delete files whose groups are all done, or have a later state."""
        saved, done = self._saved, self._saved.done
        for key in done.intersection(self.rows):
            del self.rows[key]
            self._states.pop(key, None)
            self._policies.pop(key, None)
        for job in [job for job in saved.jobs if job.parked]:
            if all(key in done or self._latest(key) is not job for key in job.groups):
                saved.jobs.remove(job)
                job.file.unlink(missing_ok=True)
