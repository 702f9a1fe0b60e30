"""Lost, frozen and missing workers of the pool, with a Ray in this process that has the faults asked for."""

import itertools
from types import SimpleNamespace

import pytest

from envcoder_bench.core.errors import NoWorker
from envcoder_bench.run.workers import ray_pool
from envcoder_bench.run.workers.devices import Devices
from envcoder_bench.run.workers.messages import Ready, WorkerLost
from envcoder_bench.run.workers.ray_pool import HEARTBEAT_TIMEOUT, START_TIMEOUT, STRAGGLER_TIMEOUT, RayPool


class RayError(Exception):
    pass


class Reply:
    def __init__(self, actor):
        self.actor = actor


class Actor:
    """An actor whose ``poll`` answers at once: first that it is ready. ``fault`` is an exception, or "frozen"."""

    def __init__(self, fault=None):
        self.fault, self.messages, self.killed = fault, [Ready(None, {}, "", "")], False
        self.poll = SimpleNamespace(remote=lambda: Reply(self))


class FakeRay:
    exceptions = SimpleNamespace(RayTaskError=type("RayTaskError", (Exception,), {}), RayError=RayError)

    def __init__(self):
        self.actors, self.fault = [], None

    def remote(self, _):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._create))

    def _create(self, _):
        self.actors.append(Actor(self.fault))
        return self.actors[-1]

    def wait(self, replies, num_returns, timeout):
        return [reply for reply in replies if reply.actor.fault != "frozen"], []

    def get(self, reply):
        if reply.actor.fault is not None:
            raise reply.actor.fault
        messages, reply.actor.messages = reply.actor.messages, []
        return messages

    def kill(self, actor):
        actor.killed = True


@pytest.fixture
def ray(monkeypatch):
    """The fake, with a clock that goes on by a second at each look."""
    fake, seconds = FakeRay(), itertools.count()
    fake.ended = []  # whether Ray's processes have ended, by poll
    fake.restarted = []
    monkeypatch.setattr(ray_pool, "import_ray", lambda: fake)
    monkeypatch.setattr(ray_pool.time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(ray_pool, "node_ended", lambda: bool(fake.ended) and fake.ended.pop(0))
    monkeypatch.setattr(ray_pool, "restart_node", fake.restarted.append)
    return fake


@pytest.fixture
def pool(ray):
    pool = RayPool(Devices("cpu", 2), 2, lambda *_: None)
    assert [type(message) for _, message in pool.poll()] == [Ready, Ready]
    return pool


def losses(pool, polls):
    return [(number, m) for _ in range(polls) for number, m in pool.poll() if isinstance(m, WorkerLost)]


def test_frozen_worker_is_killed_and_replaced_after_the_stated_time(ray, pool):
    ray.actors[0].fault = "frozen"
    assert not losses(pool, int(HEARTBEAT_TIMEOUT) - 5)
    ((number, loss),) = losses(pool, 10)
    assert (number, loss.reason, loss.is_crash) == (0, "no heartbeat for 60 s", True)
    assert ray.actors[0].killed and len(ray.actors) == 3
    assert not losses(pool, 100)  # the new one works


@pytest.mark.parametrize(
    "text, reason, is_crash",
    [
        ("The actor died because its node has died.", "its node failed", False),
        ("Task was killed due to the node running low on memory.", "out of main memory", True),
        ("The actor died unexpectedly before finishing this task.", "its process died", True),
    ],
)
def test_dead_worker_is_replaced_and_its_reason_is_named(ray, pool, text, reason, is_crash):
    ray.actors[1].fault = RayError(text)
    assert losses(pool, 3) == [(1, WorkerLost(reason, is_crash))]
    assert len(ray.actors) == 3


def test_ray_on_this_machine_is_started_again_once(ray, pool, caplog):
    ray.ended = [False, True, False, False, True]
    assert losses(pool, 1) == []
    assert losses(pool, 1) == [(k, WorkerLost("its node failed", is_crash=False)) for k in (0, 1)]
    assert ray.restarted == [Devices("cpu", 2)] and "they are started again" in caplog.text
    assert [(number, type(message)) for number, message in pool.poll()] == [(2, Ready), (3, Ready)]
    pool.poll()
    with pytest.raises(NoWorker, match="have ended twice"):
        pool.poll()


def test_ray_of_a_cluster_is_not_started(ray):
    pool = RayPool(Devices("cpu", 2, address="host:1"), 2, lambda *_: None)
    ray.ended = [True]
    assert [type(message) for _, message in pool.poll()] == [Ready, Ready] and not ray.restarted


def test_without_any_worker_the_run_ends_after_the_stated_time(ray):
    ray.fault = "frozen"
    pool = RayPool(Devices("cpu", 1), 1, lambda *_: None)
    with pytest.raises(NoWorker, match="no worker started within 300 s"):
        for _ in range(int(START_TIMEOUT) + 5):
            pool.poll()


def test_last_worker_is_waited_for_from_the_start_of_the_first(ray):
    """However long that took: kernels are compiled on all devices at the same time."""
    ray.fault = "frozen"
    pool = RayPool(Devices("cpu", 2), 2, lambda *_: None)
    losses(pool, 2 * int(STRAGGLER_TIMEOUT))
    assert pool.num_starting == 2
    ray.actors[0].fault = None
    losses(pool, int(STRAGGLER_TIMEOUT) // 2)
    assert pool.num_starting == 1
    losses(pool, int(STRAGGLER_TIMEOUT))
    assert pool.num_starting == 0
    # without any started worker all are waited for again
    ray.fault, ray.actors[0].fault = "frozen", RayError("The actor died unexpectedly before finishing this task.")
    assert losses(pool, 2)
    assert pool.num_starting == 2


def test_worker_that_cannot_start_is_given_up(ray, pool, caplog):
    ray.fault = RayError("The actor died because of an error raised in its creation task")
    for actor in ray.actors:
        actor.fault = ray.fault
    with pytest.raises(NoWorker, match=r"no worker can be started: .*creation task"):
        losses(pool, 20)
    assert "a worker failed to start twice, its device is not used" in caplog.text
