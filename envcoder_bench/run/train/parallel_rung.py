"""Training of the waves of a race on several devices at a time, from one rung to the next."""

from typing import Any

from envcoder_bench.report.results import Result
from envcoder_bench.run.folder.checkpoint import load_job, pack_job
from envcoder_bench.run.train.parallel_waves import ParallelWaves, sum_counts
from envcoder_bench.run.train.parked import ParkedGroups
from envcoder_bench.run.train.training import Training
from envcoder_bench.run.workers.head import Head
from envcoder_bench.run.workers.jobs import Job
from envcoder_bench.run.workers.messages import RungReached, Train, Trained


class ParallelRung(ParallelWaves):
    """Trains waves to the iteration ``end`` on the workers of ``head``, and parks them there."""

    def __init__(self, training: Training, head: Head, parked: ParkedGroups, end: int) -> None:
        super().__init__(training, head, end)
        self._parked = parked
        self._reached = 0  # waves

    @property
    def _num_waves(self) -> int:
        return self._reached + len(self._waves)

    @property
    def _num_done(self) -> int:
        return self._reached

    @property
    def _iterations(self) -> int:
        return self._reached * self._end + sum(wave.iteration for wave in self._waves.values())

    @property
    def _running(self) -> list[Result]:
        running = {(row.candidate, row.seed): row for wave in self._waves.values() for row in wave.rows}
        done = self._saved.done
        return [row for key, row in {**self._parked.rows, **running}.items() if key not in done]

    def _start(self, job: Job) -> int:
        checkpoint = self._checkpoint(job)
        return self._parked.iteration(job.items[0]) if checkpoint is None else checkpoint.iteration

    def request(self, job: Job) -> Train:
        request = super().request(job)
        if request.checkpoint is not None or not self._parked.iteration(job.items[0]):
            return request
        states, folder = self._parked.states(job.items)
        content = pack_job(list(job.items), {"iteration": self._parked.iteration(job.items[0]), "parts": states}, {})
        return self._with_checkpoint(request, content, str(folder))

    def handle(self, job: Job, message: Any) -> bool:
        if not isinstance(message, RungReached):
            self._reached += isinstance(message, Trained)
            return super().handle(job, message)
        self._logs.append(message.rows)
        saved, checkpoint = self._saved, self._checkpoint(job)
        counts = {} if checkpoint is None or checkpoint.parked else checkpoint.rows
        saved.rows = sum_counts(saved.rows, counts, message.rows.counts)
        self._parked.add(load_job(self._folder.jobs, message.content)[1], message.content)
        if checkpoint is not None and not checkpoint.parked and checkpoint in saved.jobs:
            saved.jobs.remove(checkpoint)
            checkpoint.file.unlink(missing_ok=True)
        del self._waves[job.name]
        self._reached += 1
        failed = [row for row in message.results if row.failed]
        self._training.finish_wave(failed, [], self._seconds, self._running)
        self._report()
        return True

    def failed(self, job: Job, reason: str) -> None:
        self._reached += 1
        super().failed(job, reason)
