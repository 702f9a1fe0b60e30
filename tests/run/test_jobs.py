"""The queue of jobs, and the head that gives them to workers, without processes and without Ray."""

import dataclasses
import itertools
import random

import pytest

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.config import compose_config
from envcoder_bench.run.devices import Devices, asked_devices
from envcoder_bench.run.head import Head, Lost, Pool, Work
from envcoder_bench.run.hooks import StopRequest
from envcoder_bench.run.jobs import AGAIN, FAILED, HALVED, Job, JobQueue
from envcoder_bench.run.plan import GroupFacts, _counts
from envcoder_bench.run.worker import Broken, Checked, OutOfMemory, Ready, Said, Stopped, code_digest
from envcoder_bench.tasks import registry
from envcoder_bench.tasks.registry import get_spec

CODE = "d1ce57"  # the digest of the head's code


def test_the_longest_job_is_first_and_of_equals_the_first():
    queue = JobQueue([Job(("a",), 1), Job(("b",), 3), Job(("c",), 3)])
    assert [queue.take(worker).items[0] for worker in range(3)] == ["b", "c", "a"]
    assert queue.take(3) is None


def test_a_job_that_kills_twice_is_halved_until_one_item_fails():
    queue = JobQueue([Job(tuple("abcdefg"), 7)])
    failed, rounds = [], 0
    while queue.left:
        rounds += 1
        job = queue.take(rounds)
        if "e" in job.items:
            verdict, _ = queue.died(rounds)
            failed += [*job.items] if verdict == FAILED else []
            assert verdict == (AGAIN if job.deaths < 2 else FAILED if len(job.items) == 1 else HALVED)
        else:
            queue.done(rounds)
    assert failed == ["e"]


def test_halves_keep_the_order_and_the_work():
    first, second = Job(tuple("abcde"), 10.0).halves()
    assert (first.items, second.items) == (tuple("abc"), tuple("de"))
    assert (first.work, second.work) == (6.0, 4.0)


def test_a_worker_lost_by_accident_does_not_count():
    queue = JobQueue([Job(("a",), 1)])
    for worker in range(10):
        queue.take(worker)
        assert queue.give_back(worker).deaths == 0


@pytest.mark.parametrize("saved, verdict", [(9, AGAIN), (5, FAILED), (3, FAILED)])
def test_deaths_at_different_places_are_different_deaths(saved, verdict):
    queue = JobQueue([Job(("a",), 1)])
    queue.take(0).reached = 5
    assert queue.died(0)[0] == AGAIN
    queue.take(1).saved(saved)  # beyond iteration 5 whatever killed the first worker is past
    assert queue.died(1)[0] == verdict


def test_a_job_has_the_same_name_in_every_process():
    assert Job((("human", 0), ("a", 1)), 5.0).name == Job((("human", 0), ("a", 1)), 2.0).name == "bdc085b4c1658945"


@pytest.mark.parametrize("groups, begun, devices", list(itertools.product([1, 5, 12], [0, 1, 3], [1, 2, 3])))
def test_every_device_has_as_many_waves_as_the_others(groups, begun, devices):
    counts = list(_counts(groups, begun, devices))
    assert counts == sorted(set(counts))
    assert counts[-1] == groups
    assert all((count + begun) % devices == 0 for count in counts[:-1])
    if devices == 1:
        assert counts == list(range(1, groups + 1))


# the head


class FakePool(Pool):
    """Workers that answer at once; ``fate(worker, items)`` may be a message in place of the answer."""

    def __init__(self, size, fate=lambda worker, order: None):
        self.workers, self.count, self.fate = list(range(size)), size, fate
        self.messages = [(worker, ready()) for worker in self.workers]
        self.stopped, self.orders = None, []

    starting = 0

    def begin(self, worker, order):
        assert worker in self.workers
        self.orders.append((worker, order))
        message = self.fate(worker, order)
        self.messages.append((worker, message or Checked(order.name, {item: (1, 1) for item in order.items}, {})))
        if isinstance(message, Lost):
            self.replace(worker)

    def replace(self, worker):
        self.workers.remove(worker)
        self.workers.append(self.count)
        self.messages.append((self.count, ready()))
        self.count += 1

    def poll(self):
        random.Random(len(self.orders)).shuffle(self.messages)
        self.messages.sort(key=lambda one: not isinstance(one[1], Lost))  # of one worker they come in order
        messages, self.messages = self.messages[:1], self.messages[1:]
        assert messages, "the head waits for nothing"
        return messages

    def stop(self, by):
        self.stopped = by

    def discard(self, worker):
        self.replace(worker)

    def close(self):
        self.workers = []


class Listed(Work):
    """A job is done when its items are listed."""

    def __init__(self):
        self.done, self.failed, self.halved = [], {}, 0

    def order(self, job):
        return job

    def hear(self, job, message):
        self.done += message.widths if isinstance(message, Checked) else []
        return isinstance(message, (Checked, Stopped))

    def dropped(self, job, failed):
        self.halved += failed is None
        self.failed.update(dict.fromkeys(job.items if failed else (), failed))


def ready(node="here", code=CODE, **software):
    versions = {"python": "3.11", "torch": "2.13.0", "device": "a GPU", **software}
    return Ready(None, versions, code, node)


def jobs(*texts):
    return [Job(tuple(text), len(text)) for text in texts]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_all_jobs_are_done_once_whoever_dies(workers, seed):
    chance = random.Random(seed)
    pool = FakePool(workers, lambda *_: Lost("killed", False) if chance.random() < 0.4 else None)
    work, head = Listed(), Head(pool, CODE)
    assert head.see_through(jobs("abc", "de", "f", "ghij"), work)
    assert sorted(work.done) == list("abcdefghij")
    assert not work.failed


@pytest.mark.parametrize("death", [Lost("killed"), OutOfMemory("x", "no room")])
def test_what_kills_its_workers_is_found_and_the_others_are_done(death, caplog):
    work = Listed()
    pool = FakePool(2, lambda worker, order: death if "d" in order.items else None)
    assert Head(pool, CODE).see_through(jobs("abcd", "ef"), work)
    assert sorted(work.done) == list("abcef")
    assert list(work.failed) == ["d"]
    assert ("killed" if isinstance(death, Lost) else "out of memory (no room)") in work.failed["d"]
    assert work.halved == 2
    assert "goes on elsewhere" in caplog.text


def test_a_stop_asks_all_workers_and_begins_nothing_more():
    stop = StopRequest()

    def fate(worker, order):
        stop(15)
        return Stopped(order.name)

    pool, work = FakePool(1, fate), Listed()
    assert not Head(pool, CODE).see_through(jobs("ab", "c"), work, stop)
    assert (pool.stopped, len(pool.orders)) == (15, 1)


def test_messages_of_a_worker_that_was_given_up_count_no_more():
    pool, work = FakePool(1), Listed()
    pool.messages.append((77, Checked(Job(("a",), 1).name, {"wrong": (1, 1)}, {})))
    assert Head(pool, CODE).see_through(jobs("a"), work)
    assert work.done == ["a"]


def test_what_two_workers_say_is_said_once(caplog):
    pool = FakePool(2)
    pool.messages += [(worker, Said(30, "f.py:3: it is not compiled")) for worker in (0, 1)]
    Head(pool, CODE).see_through(jobs("a", "b", "c", "d", "e"), Listed())
    assert caplog.text.count("it is not compiled") == 1


def test_a_mistake_of_the_user_ends_the_run_as_one():
    with pytest.raises(UserError, match=r"^--fitness f\.py: no$"):
        Head(FakePool(1, lambda *_: Broken("--fitness f.py: no", True)), CODE).see_through(jobs("a"), Listed())
    with pytest.raises(RuntimeError, match="Traceback"):
        Head(FakePool(1, lambda *_: Broken("Traceback", False)), CODE).see_through(jobs("a"), Listed())


@pytest.mark.parametrize(
    "others, message",
    [
        ([ready("there", torch="2.14.0")], "torch 2.14.0 on there and 2.13.0 on here"),
        ([ready("there", code="12")], "code of envcoder_bench on there is not that of this machine"),
    ],
)
def test_nodes_with_other_versions_are_refused(others, message):
    pool = FakePool(0)
    pool.starting = 2
    pool.messages = [(k, own) for k, own in enumerate([ready(), *others])]
    with pytest.raises(UserError, match=message):
        Head(pool, CODE).gather()


def test_tasks_that_the_head_used_before_are_no_part_of_its_code(monkeypatch):
    cfg = compose_config("Cartpole", [])
    before = code_digest(cfg)
    other = dataclasses.replace(get_spec("Ant"), digest="of another task, from outside")
    monkeypatch.setitem(registry._found, "Other", other)
    assert code_digest(cfg) == before
    monkeypatch.setitem(registry._found, "Cartpole", other)
    assert code_digest(cfg) != before


# devices


def devices(**keys):
    cfg = compose_config("Cartpole")
    for key, value in keys.items():
        cfg[key] = value
    return asked_devices(cfg)


@pytest.mark.slow
def test_devices_that_can_be_asked_for(monkeypatch):
    assert devices() is None
    assert devices(devices="cpu:3") == Devices("cpu", 3)
    assert devices(devices="CPU:2", ray="10.0.0.1:6379") == Devices("cpu", 2, address="10.0.0.1:6379")
    assert devices(ray="auto") == devices(ray="auto", devices="all") == Devices("cuda", None, address="auto")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert devices(devices="all") == Devices("cuda", 3, (0, 1, 2))
    assert devices(devices="2, 0") == devices(devices=[2, 0]) == Devices("cuda", 2, (2, 0))
    assert devices(devices=1) == Devices("cuda", 1, (1,))
    with pytest.raises(UserError, match="there is no GPU 3 on this machine, only GPUs 0 to 2"):
        devices(devices="0,3")
    with pytest.raises(UserError, match="names a GPU twice"):
        devices(devices="1,1")


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"devices": "cpu:0"}, "at least one worker must train"),
        ({"devices": "gpu"}, "--devices must be all, GPU numbers such as 0,1, or cpu:N, got gpu"),
        ({"devices": "all"}, "torch sees no CUDA device here; --devices cpu:N trains on the CPU"),
        ({"devices": "0,1"}, "torch sees no CUDA device here"),
        ({"ray": "somewhere"}, "--ray must be auto or HOST:PORT, got somewhere"),
        ({"ray": "auto", "devices": "0,1"}, "--ray takes all GPUs of the cluster, or --devices cpu:N"),
        ({"devices": "cpu:2", "profile": True}, "--profile measures one device"),
        ({"devices": "cpu:2", "isolate": "process"}, "--isolate process trains on one device"),
        ({"devices": "cpu:2", "sim": "mujoco_warp"}, "--sim mujoco_warp does not run on these devices"),
    ],
)
def test_devices_that_cannot(keys, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=message):
        devices(**keys)


def test_groups_of_another_process_are_planned_like_groups():
    assert GroupFacts("a", 0, (4, 1)).widths == (4, 1)
