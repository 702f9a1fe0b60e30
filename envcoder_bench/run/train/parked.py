"""The states of a race's groups between two rungs, in files of the folder ``jobs/``."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from envcoder_bench.results.rows import Result, result_of
from envcoder_bench.run.folder.checkpoint import Checkpoint, GroupKey, SavedJob, load_job, pack_job, packed
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.train.rows import trained
from envcoder_bench.run.train.session import Session
from envcoder_bench.run.workers.jobs import Job


def rung_state(session: Session) -> dict[str, Any]:
    """Return rows, states and policies of a session's groups that have not failed, as plain data."""
    alive = [(g, row, part) for g, (row, part) in enumerate(zip(trained(session), session.split())) if not row.failed]
    return {
        "iteration": session.iteration,
        "results": [asdict(row) for _, row, _ in alive],
        "parts": [part for _, _, part in alive],
        "policies": [packed(session.trainer.export(g)) for g, _, _ in alive],
    }


class ParkedGroups:
    """Groups that wait at a rung.

    Attributes:
        rows: the last row of each group that waits.
        kept: groups whose states the worker in this process has.
    """

    def __init__(self, folder: RunFolder, saved: Checkpoint) -> None:
        self._folder, self._saved = folder, saved
        self.rows: dict[GroupKey, Result] = {}
        self.kept: set[GroupKey] = set()
        self._policies: dict[GroupKey, bytes] = {}  # ``kept`` policies
        for job in sorted(saved.jobs, key=lambda job: job.iteration):
            if job.parked:
                self._add_rows([result_of(row) for row in load_job(job.file)[1]["results"]])

    def _add_rows(self, rows: Sequence[Result]) -> list[GroupKey]:
        keys = [row.key for row in rows]
        self.rows.update({key: row for key, row in zip(keys, rows) if key not in self._saved.done})
        return keys

    def add(self, iteration: int, rows: Sequence[Result], content: bytes, policies: Mapping[GroupKey, bytes]) -> None:
        """Save groups that have reached a rung; ``content`` and ``policies`` are as of ``RungReached``."""
        keys = self._add_rows(rows)
        # a name of its own: the checkpoint of the same groups in training may be there
        file = self._folder.job(f"{Job(tuple(keys), 0.0).name}_rung")
        self._folder.jobs.mkdir(exist_ok=True)
        self._folder.write(file, content)
        others = [saved for saved in self._saved.jobs if saved.file != file]
        self._saved.jobs = [*others, SavedJob(keys, iteration, {}, file, parked=True)]
        self.kept.update(policies)
        self._policies.update(policies)

    def _latest(self, key: GroupKey) -> SavedJob | None:
        """Return the file with the latest state of a group."""
        jobs = [job for job in self._saved.jobs if job.parked and key in job.groups]
        return max(jobs, key=lambda job: job.iteration, default=None)

    def iteration(self, key: GroupKey) -> int:
        """Return the rung at which a group waits, 0 before the first."""
        job = self._latest(key)
        return 0 if job is None else job.iteration

    def pack(self, keys: Sequence[GroupKey]) -> bytes:
        """Return the states of groups that wait, as the checkpoint of a job with these groups."""
        state = {"iteration": self.iteration(keys[0]), "parts": self._read(keys, "parts")}
        return pack_job(list(keys), state, {})

    def policies(self, keys: Sequence[GroupKey]) -> list[bytes]:
        """Return the policy files of groups that wait."""
        if self._policies.keys() >= set(keys):
            return [self._policies[key] for key in keys]
        return self._read(keys, "policies")

    def _read(self, keys: Sequence[GroupKey], name: str) -> list[Any]:
        """Return what the files have of groups under a name."""
        keys_by_file: dict[Path, list[GroupKey]] = {}
        for key in keys:
            job = self._latest(key)
            assert job is not None
            keys_by_file.setdefault(job.file, []).append(key)
        values: dict[GroupKey, Any] = {}
        for file, keys_of_file in keys_by_file.items():
            job, state = load_job(file)
            saved = dict(zip(job.groups, state[name]))
            values.update((key, saved[key]) for key in keys_of_file)
        return [values[key] for key in keys]

    def drop_superseded(self) -> None:
        """Delete files whose groups are all done, or have a later state."""
        saved, done = self._saved, self._saved.done
        for key in done.intersection(self.rows):
            del self.rows[key]
            self._policies.pop(key, None)
        for job in [job for job in saved.jobs if job.parked]:
            if all(key in done or self._latest(key) is not job for key in job.groups):
                saved.jobs.remove(job)
                job.file.unlink(missing_ok=True)
