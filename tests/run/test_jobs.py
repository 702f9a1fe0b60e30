"""The queue of jobs, and the head that assigns them to workers, without processes and without Ray."""

import dataclasses
import itertools
import logging
import random

import pytest

from envcoder_bench.cli.console import resumable
from envcoder_bench.core.errors import NoWorker, UserError
from envcoder_bench.core.run_log import RepeatHandler
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.folder.run_folder import RunFolder, at_work
from envcoder_bench.run.hooks import StopRequest
from envcoder_bench.run.prepare.plan import _counts
from envcoder_bench.run.workers.devices import Devices, requested_devices
from envcoder_bench.run.workers.head import Head, JobHandler, Pool
from envcoder_bench.run.workers.jobs import CrashOutcome, Job, JobQueue
from envcoder_bench.run.workers.messages import (
    Checked,
    OutOfMemory,
    Ready,
    TrainingStopped,
    UserMessage,
    WorkerError,
    WorkerLost,
)
from envcoder_bench.run.workers.worker import code_digest
from envcoder_bench.sources import registry
from envcoder_bench.sources.registry import find_spec

CODE = "d1ce57"  # the digest of the head's code


def test_job_that_crashes_twice_is_bisected_until_one_item_fails():
    queue = JobQueue([Job(tuple("abcdefg"), 7)])
    failed, worker = [], 0
    while queue.waiting:
        worker += 1
        job = queue.take(worker)
        if "e" not in job.items:
            queue.finish(worker)
            continue
        _, outcome = queue.crash(worker)
        at_last = CrashOutcome.FAILED if len(job.items) == 1 else CrashOutcome.BISECTED
        assert outcome == (CrashOutcome.RETRIED if job.crashes < 2 else at_last)
        failed += job.items if outcome == CrashOutcome.FAILED else ()
    assert failed == ["e"]


def test_the_most_expensive_job_is_taken_first():
    queue = JobQueue([Job((name,), cost) for name, cost in (("a", 1), ("b", 3), ("c", 3), ("d", 2))])
    assert [queue.take(worker).items for worker in range(4)] == [("b",), ("c",), ("d",), ("a",)]


def test_retry_does_not_count_as_a_crash():
    queue = JobQueue([Job(("a",), 1)])
    for worker in range(10):
        queue.take(worker)
        assert queue.retry(worker).crashes == 0
    assert queue.retry("without a job") is queue.crash("without a job") is None


@pytest.mark.parametrize(
    "saved, outcome", [(9, CrashOutcome.RETRIED), (5, CrashOutcome.FAILED), (3, CrashOutcome.FAILED)]
)
def test_crashes_at_different_iterations_are_counted_separately(saved, outcome):
    queue = JobQueue([Job(("a",), 1)])
    queue.take(0).iteration = 5
    assert queue.crash(0)[1] == CrashOutcome.RETRIED
    queue.take(1).saved(saved)  # beyond iteration 5 the cause of the first crash is past
    assert queue.crash(1)[1] == outcome


def test_job_name_depends_only_on_its_items():
    assert Job((("human", 0), ("a", 1)), 5.0).name == Job((("human", 0), ("a", 1)), 2.0).name == "bdc085b4c1658945"


@pytest.mark.parametrize("groups, begun, devices", list(itertools.product([1, 5, 12], [0, 1, 3], [1, 2, 3])))
def test_wave_counts_are_multiples_of_the_number_of_devices(groups, begun, devices):
    counts = list(_counts(groups, begun, devices))
    assert counts == sorted(set(counts))
    assert counts[-1] == groups
    assert all((count + begun) % devices == 0 for count in counts[:-1])
    if devices == 1:
        assert counts == list(range(1, groups + 1))


# the head


class FakePool(Pool):
    """Workers that answer immediately; ``answer(worker, request)`` may return another message than Checked."""

    def __init__(self, size, answer=lambda worker, request: None):
        self.workers, self.count, self.answer = list(range(size)), size, answer
        self.messages = [(worker, ready()) for worker in self.workers]
        self.stopped, self.requests = None, []

    num_starting = 0

    def submit(self, worker, request):
        assert worker in self.workers
        self.requests.append((worker, request))
        message = self.answer(worker, request) or Checked(request.name, dict.fromkeys(request.items, (1, 1)), {})
        self.messages.append((worker, message))
        if isinstance(message, WorkerLost):
            self.restart(worker)

    def restart(self, worker):
        self.workers.remove(worker)
        self.workers.append(self.count)
        self.messages.append((self.count, ready()))
        self.count += 1

    def poll(self):
        random.Random(len(self.requests)).shuffle(self.messages)
        self.messages.sort(key=lambda one: not isinstance(one[1], WorkerLost))  # messages of one worker are in order
        messages, self.messages = self.messages[:1], self.messages[1:]
        assert messages, "the head waits forever"
        return messages

    def stop(self, by):
        self.stopped = by

    def close(self):
        self.workers = []


class Recorder(JobHandler):
    """Records the items of finished and of failed jobs."""

    item = "letter"

    def __init__(self):
        self.done, self.errors, self.bisections = [], {}, 0

    def request(self, job):
        return job

    def handle(self, job, message):
        self.done += message.widths if isinstance(message, Checked) else []
        return isinstance(message, (Checked, TrainingStopped))

    def bisected(self, job):
        self.bisections += 1

    def failed(self, job, reason):
        self.errors.update(dict.fromkeys(job.items, reason))


def ready(node="here", code=CODE, **software):
    versions = {"python": "3.11", "torch": "2.13.0", "device": "a GPU", **software}
    return Ready(None, versions, code, node)


def jobs(*texts):
    return [Job(tuple(text), len(text)) for text in texts]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_all_jobs_are_done_once_if_workers_are_lost(workers, seed):
    chance = random.Random(seed)
    pool = FakePool(workers, lambda *_: WorkerLost("killed", is_crash=False) if chance.random() < 0.4 else None)
    recorder = Recorder()
    assert Head(pool, CODE).run(jobs("abc", "de", "f", "ghij"), recorder)
    assert sorted(recorder.done) == list("abcdefghij")
    assert not recorder.errors


@pytest.mark.parametrize("loss", [WorkerLost("killed"), OutOfMemory("x", "no room")])
def test_item_that_crashes_workers_is_isolated_and_others_are_done(loss, caplog):
    recorder = Recorder()
    pool = FakePool(2, lambda worker, request: loss if "d" in request.items else None)
    assert Head(pool, CODE).run(jobs("abcd", "ef"), recorder)
    assert sorted(recorder.done) == list("abcef")
    reason = "killed" if isinstance(loss, WorkerLost) else "out of memory (no room)"
    assert recorder.errors == {"d": reason}
    assert recorder.bisections == 2
    assert f"lost a worker ({reason}): its job of 4 letters is retried on another worker" in caplog.text
    assert f"lost another worker ({reason}): its job of 4 letters is bisected" in caplog.text


def test_a_loss_is_shown_at_once():
    shown, handler = [], RepeatHandler(lambda text: shown.append(text))
    losses = iter([WorkerLost("killed"), None])

    def answer(worker, request):
        return next(losses)

    log = logging.getLogger("envcoder_bench")
    log.addHandler(handler)
    try:
        Head(FakePool(2, answer), CODE).run(jobs("ab"), Recorder())
    finally:
        log.removeHandler(handler)
    assert len(shown) == 1 and "lost a worker" in shown[0]  # without a flush by somebody else


def test_stop_reaches_all_workers_and_starts_no_other_job():
    stop = StopRequest()

    def answer(worker, request):
        stop(15)
        return TrainingStopped(request.name, 3)

    pool = FakePool(1, answer)
    assert not Head(pool, CODE).run(jobs("ab", "c"), Recorder(), stop)
    assert (pool.stopped, len(pool.requests)) == (15, 1)


def test_run_without_workers_tells_how_to_resume(tmp_path):
    told = r"none left. What was saved before is intact: .*eval.shapers.* --resume "
    with pytest.raises(UserError, match=told) as error, resumable(), at_work(RunFolder(tmp_path / "run")):
        raise NoWorker("none left")
    assert str(tmp_path / "run") in str(error.value)


def test_a_worker_that_is_lost_while_idle_gets_no_job():
    pool = FakePool(2)
    head = Head(pool, CODE)
    head.wait_for_workers()
    while pool.messages:
        head._poll()
    pool.messages.append((0, WorkerLost("gone")))
    pool.restart(0)
    while pool.messages:
        head._poll()
    handler = Recorder()
    assert head.run(jobs("a", "b", "c"), handler) and sorted(handler.done) == ["a", "b", "c"]
    assert {worker for worker, _ in pool.requests} <= {1, 2}


def test_late_messages_of_a_lost_worker_are_ignored():
    pool, recorder = FakePool(1), Recorder()
    pool.messages.append((77, Checked(Job(("a",), 1).name, {"wrong": (1, 1)}, {})))
    assert Head(pool, CODE).run(jobs("a"), recorder)
    assert recorder.done == ["a"]


def test_messages_of_another_job_than_the_workers_are_ignored():
    def answer(worker, request):
        pool.messages += [(worker, Checked("an earlier job", {"wrong": (1, 1)}, {}))] * 5

    pool, recorder = FakePool(1, answer), Recorder()
    assert Head(pool, CODE).run(jobs("a", "b"), recorder)
    assert sorted(recorder.done) == ["a", "b"]


def test_message_of_two_workers_is_logged_once(caplog):
    pool = FakePool(2)
    pool.messages += [(worker, UserMessage(30, "f.py:3: it is not compiled")) for worker in (0, 1)]
    Head(pool, CODE).run(jobs("a", "b", "c", "d", "e"), Recorder())
    assert caplog.text.count("it is not compiled") == 1


def test_user_error_in_a_worker_is_raised_as_user_error():
    with pytest.raises(UserError, match=r"^--fitness f\.py: no$"):
        Head(FakePool(1, lambda *_: WorkerError("--fitness f.py: no", True)), CODE).run(jobs("a"), Recorder())
    with pytest.raises(RuntimeError, match="Traceback"):
        Head(FakePool(1, lambda *_: WorkerError("Traceback", False)), CODE).run(jobs("a"), Recorder())


@pytest.mark.parametrize(
    "others, message",
    [
        ([ready("there", torch="2.14.0")], "torch 2.14.0 on there and 2.13.0 on here"),
        ([ready("there", code="12")], "envcoder_bench on there differs from the one on this machine"),
    ],
)
def test_nodes_with_other_versions_are_refused(others, message):
    pool = FakePool(0)
    pool.num_starting = 2
    pool.messages = [(k, own) for k, own in enumerate([ready(), *others])]
    with pytest.raises(UserError, match=message):
        Head(pool, CODE).wait_for_workers()


def test_run_without_all_of_its_devices_says_so(caplog):
    looks = [2, 1, 0]  # what it says at each

    class Pool(FakePool):
        @property
        def num_starting(self):
            return looks.pop(0)

    head = Head(Pool(1), CODE)
    head.wait_for_workers()
    assert len(head.workers) == 1 and "1 of 2 devices have started: the run is planned for these" in caplog.text


def test_other_registered_tasks_do_not_change_the_code_digest(monkeypatch):
    before = code_digest(find_spec("Cartpole"))
    other = dataclasses.replace(find_spec("Cartpole"), digest="of another task, from outside")
    monkeypatch.setitem(registry._found, "Other", other)
    assert code_digest(find_spec("Cartpole")) == before
    monkeypatch.setitem(registry._found, "Cartpole", other)
    assert code_digest(find_spec("Cartpole")) != before


# devices


def devices(**keys):
    return requested_devices(compose_config("Cartpole").model_copy(update=keys))


@pytest.mark.slow
def test_valid_devices_are_parsed(monkeypatch):
    assert devices() is None
    assert devices(devices="cpu:3") == Devices("cpu", 3)
    assert devices(devices="CPU:2", ray="10.0.0.1:6379") == Devices("cpu", 2, address="10.0.0.1:6379")
    assert devices(ray="auto") == devices(ray="auto", devices="all") == Devices("cuda", None, address="auto")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert devices(devices="all") == Devices("cuda", 3, (0, 1, 2))
    assert devices(devices="2, 0") == devices(devices=(2, 0)) == Devices("cuda", 2, (2, 0))
    assert devices(devices=1) == Devices("cuda", 1, (1,))
    with pytest.raises(UserError, match="there is no GPU 3 on this machine, only GPUs 0 to 2"):
        devices(devices="0,3")
    with pytest.raises(UserError, match="names a GPU twice"):
        devices(devices="1,1")


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"devices": "cpu:0"}, "at least one worker is needed"),
        ({"devices": "gpu"}, "--devices must be all, GPU numbers such as 0,1, or cpu:N, got gpu"),
        ({"devices": "all"}, "torch finds no CUDA device; use --devices cpu:N for workers on the CPU"),
        ({"devices": "0,1"}, "torch finds no CUDA device"),
        ({"ray": "somewhere"}, "--ray must be auto or HOST:PORT, got somewhere"),
        ({"ray": "auto", "devices": "0,1"}, "--ray uses all GPUs of the cluster, or --devices cpu:N"),
        ({"devices": "cpu:2", "profile": True}, "--profile measures one device"),
        ({"devices": "cpu:2", "isolate": "process"}, "--isolate process trains on one device"),
        ({"devices": "cpu:2", "sim": "mujoco_warp"}, "--sim mujoco_warp does not run on these devices"),
    ],
)
def test_invalid_devices_are_refused(keys, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=message):
        devices(**keys)
