"""The worker of a run on one device: it trains in this process."""

from typing import Any

from envcoder_bench.run.prepare.plan import MemoryPlanner
from envcoder_bench.run.spec import RunSpec
from envcoder_bench.run.workers.head import Pool
from envcoder_bench.run.workers.messages import Check, Ready, Request
from envcoder_bench.run.workers.worker import Worker


class InlinePool(Pool):
    """One worker in this process: ``submit`` returns when the job is over, and its messages are handled at once.

    Errors of a job are raised by ``submit``; there is no other worker that could try it again.
    """

    is_local = True

    def __init__(self, spec: RunSpec, planner: MemoryPlanner, code: str) -> None:
        self._worker = Worker(spec, planner, keeps_parked=True)
        self._ready: list[tuple[int, Any]] = [(0, Ready(planner, {"device": spec.config.device}, code, ""))]

    @property
    def num_starting(self) -> int:
        return 0

    def submit(self, worker: int, request: Request) -> None:
        def send(message: Any) -> None:
            self.deliver(worker, message)

        if isinstance(request, Check):
            self._worker.check(request, send)
        else:
            shared = self.shared
            assert shared is not None
            self._worker.train(request, send, shared.logs, shared.reporter, shared.stop, shared.profile)

    def poll(self) -> list[tuple[int, Any]]:
        messages, self._ready = self._ready, []
        return messages

    def stop(self, by: int | str) -> None:
        """The session knows the run's own request."""

    def restart(self, worker: int) -> None:
        raise NotImplementedError("the worker is this process")

    def close(self) -> None:
        self._worker.planner.close()
