"""Runs with several workers, as threads of this process, are bitwise equal to runs without workers."""

import contextlib
import io
import json
import random
import time

import helpers
import pytest
import torch
from helpers import BREAKS_MIDWAY, SETTINGS, TABLES, TINY, assert_same_policies, assert_same_tables, stopped_at

import envcoder_bench
from envcoder_bench.run import seeds
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.hooks import Reporter
from envcoder_bench.run.workers import start
from envcoder_bench.run.workers.devices import requested_devices
from envcoder_bench.run.workers.head import Head, Pool
from envcoder_bench.run.workers.messages import JobCheckpoint, Progress, Ready, Train, Trained, WorkerLost, WorkerSetup
from envcoder_bench.run.workers.worker import RemoteWorker, code_digest

pytestmark = pytest.mark.slow

ITERATIONS = 4
CANDIDATES = {**helpers.CANDIDATES, "breaks_midway": BREAKS_MIDWAY.replace("25", "3")}
ALONE = {
    **SETTINGS, "num_envs_per_candidate": 8, "learning_iterations": ITERATIONS, "seeds": 2, "checkpoint_minutes": 0,
    "evaluation.num_envs": 3, "evaluation.final_episodes": 3, **TINY,
}  # fmt: skip
MEASURED = 4 * 3  # policy.pth and both seeds' of the two baselines, cosine and wide


class Threads(Pool):
    """Workers in threads; ``fault(message)`` may return a WorkerLost, which replaces the message and its worker."""

    def __init__(self, size, setup, fault):
        self.size, self.setup, self.fault, self.count = size, setup, fault, 0
        self.workers, self.started = {}, set()
        for _ in range(size):
            self._start()

    def _start(self):
        self.workers[self.count] = RemoteWorker(self.setup)
        self.count += 1

    @property
    def num_starting(self):
        return self.size - len(self.started & set(self.workers))

    def submit(self, worker, request):
        self.workers[worker].submit(request)

    def stop(self, by):
        for worker in self.workers.values():
            worker.stop(by)

    def restart(self, worker):
        self.workers.pop(worker).stop("lost")
        self._start()

    def poll(self):
        found = []
        for number, worker in list(self.workers.items()):
            for message in worker.poll():
                loss = self.fault(message)
                if loss is not None:
                    self.restart(number)
                    found.append((number, loss))
                    break
                self.started |= {number} if isinstance(message, Ready) else set()
                found.append((number, message))
        return found

    def close(self):
        self.stop("closed")


@pytest.fixture
def threads(monkeypatch):
    """Run workers in threads; returns a function that sets their ``fault``."""
    faults, local = [lambda message: None], start.workers

    @contextlib.contextmanager
    def workers(spec, limit):
        devices = requested_devices(spec.config)
        if devices is None:
            with local(spec, limit) as head:
                yield head
            return
        setup = WorkerSetup(spec.config, spec.fitness)
        pool = Threads(min(devices.count, limit), setup, lambda message: faults[-1](message))
        head = Head(pool, code_digest(spec.task))
        head.wait_for_workers()
        try:
            yield head
        finally:
            pool.close()

    monkeypatch.setattr(start, "workers", workers)
    return faults.append


def settings(count, **others):
    return {**ALONE, "device": "auto", "sim": "auto", "devices": f"cpu:{count}", **others}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=folder, **ALONE)
    return folder


def assert_alike(folder, alone):
    """All results are bitwise the same."""
    assert_same_tables(folder, alone)
    assert_same_policies(folder, alone, MEASURED)
    ranking, expected = (json.loads((own / "summary.json").read_text())["ranking"] for own in (folder, alone))
    assert ranking == expected
    assert not (folder / "jobs").exists()


def test_results_are_independent_of_the_number_of_workers_and_their_timing(tmp_path, alone, threads, monkeypatch):
    count = 3
    chance, requests, submit = random.Random(count), [], Threads.submit
    monkeypatch.setattr(Threads, "submit", lambda pool, worker, own: (requests.append(own), submit(pool, worker, own)))

    def delay(message):
        time.sleep(0.02 * chance.random())

    threads(delay)
    result = envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=tmp_path / "run", **settings(count))
    assert_alike(tmp_path / "run", alone)
    assert result.summary["memory"]["waves"] == count
    assert set(result.results.status) == {"ok", "failed", "failed at load"}
    for request in [own for own in requests if isinstance(own, Train)]:  # all that a worker without the files needs
        names = {source.name for source in request.sources}
        assert names >= {"human", "unshaped", *(name for name, _ in request.groups)}


def test_lost_workers_and_a_number_of_seeds_that_is_chosen_do_not_change_results(
    tmp_path, alone, threads, monkeypatch, caplog
):
    """Workers start before the number is chosen; their memory and number decide it."""
    monkeypatch.setattr(seeds, "MOST", 2)
    monkeypatch.setattr(seeds, "_why_one", lambda cfg, shared_total: "")
    chance, losses = random.Random(0), []

    def fault(message):
        if isinstance(message, (JobCheckpoint, Trained)) and len(losses) < 3 and chance.random() < 0.3:
            losses.append(message)
            return WorkerLost("killed by the test")

    threads(fault)
    result = envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=tmp_path / "run", **settings(2, seeds="auto"))
    assert losses
    assert "(killed by the test): its job of" in caplog.text
    assert_alike(tmp_path / "run", alone)
    assert result.summary["memory"]["waves"] == 2
    groups = "5 groups of 8 environments on each device take 1."  # of five that can train
    assert f"2 seeds for each candidate (seeds=auto: {groups}" in caplog.text
    assert RunFolder(tmp_path / "run").read()[0].seeds == 2


def test_prints_of_candidates_in_workers_are_shown_to_a_limit_and_logged(tmp_path, threads, capfd):
    chatty = "def compute_reward(pole_angle):\n    print('looking')\n    return torch.cos(pole_angle)\n"
    own = settings(1, seeds=1, learning_iterations=6, baselines=False)
    envcoder_bench.evaluate("Cartpole", {"chatty": chatty}, output_dir=tmp_path / "run", **own)
    shown = capfd.readouterr().out.splitlines()
    assert shown == ["chatty prints: looking"] * 20 + ["chatty prints more, which is in run.log"]
    assert "chatty prints: looking" in (tmp_path / "run" / "run.log").read_text()


def test_group_that_crashes_workers_fails_without_affecting_others(tmp_path, alone, threads):
    def fault(message):
        if isinstance(message, JobCheckpoint) and message.iteration >= 2 and contains(message.content, "cosine", 1):
            return WorkerLost("its process died")

    class Totals(Reporter):
        def devices_at_work(self, devices, done, waves):
            totals.append((done, waves))

    totals = []
    threads(fault)
    two = {name: CANDIDATES[name] for name in ("cosine", "wide")}
    result = envcoder_bench.evaluate(
        "Cartpole", two, output_dir=tmp_path / "run", reporter=Totals(), **settings(1, baselines=False)
    )
    counts = [waves for _, waves in totals]
    assert counts == sorted(counts) and totals[-1] == (counts[-1], counts[-1])  # a failed wave is done, too
    rows = result.results.set_index(["candidate", "seed"])
    assert rows.loc[("cosine", 1), "status"] == "failed"
    assert rows.loc[("cosine", 1), "error"] == "its training crashed two workers: its process died"
    assert rows.loc[("cosine", 0), "status"] == "ok"
    for name in TABLES:
        others, expected = (
            [row for row in (own / name).read_text().splitlines() if "cosine,0," in row or "wide," in row]
            for own in (tmp_path / "run", alone)
        )
        assert others == expected and others, name


def contains(content, *group):
    groups = torch.load(io.BytesIO(content), weights_only=True)["groups"]
    return group in [tuple(own) for own in groups]


@pytest.mark.parametrize("first, then", [("cpu:2", None), (None, "cpu:2")])
def test_stopped_run_is_resumed_on_other_devices(tmp_path, alone, threads, first, then):
    """None means one process without workers."""
    output = tmp_path / "run"
    asked = {**stopped_at(ITERATIONS // 2), **(ALONE if first is None else settings(1, devices=first))}
    stopped = envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=output, **asked)
    assert not stopped.complete
    saved = RunFolder(output).load_checkpoint()
    begun = sum(map(len, saved.waves_begun))
    for job in saved.jobs[:1]:
        whole = job.file.read_bytes()
        job.file.write_bytes(whole[:-100])
        with pytest.raises(envcoder_bench.UserError, match=f"{job.file} is damaged .* trains its candidates from the"):
            envcoder_bench.resume(output, devices=then)
        job.file.write_bytes(whole)
    assert begun + len(saved.done) >= 10  # nothing is trained again
    if then is None:
        config = output / "config.yaml"
        config.write_text(config.read_text().replace(f"devices: {first}", "devices: null"))
    assert envcoder_bench.resume(output, devices=then).complete
    assert_alike(output, alone)


def test_run_is_extended_on_other_devices(tmp_path, alone, threads):
    """The first run, in one process, has half of the iterations, one seed and one candidate less."""
    few = {name: CANDIDATES[name] for name in list(CANDIDATES)[:-1]}
    asked = {**ALONE, "learning_iterations": ITERATIONS // 2, "seeds": 1}
    output = tmp_path / "run"
    envcoder_bench.evaluate("Cartpole", few, output_dir=output, **asked)
    begun = []
    threads(lambda message: begun.append(message.iteration) if isinstance(message, Progress) else None)
    envcoder_bench.extend(output, CANDIDATES, seeds=2, learning_iterations=ITERATIONS, devices="cpu:2")
    assert_same_tables(output, alone, ("results.csv", "components.csv"))
    assert_same_policies(output, alone, MEASURED)
    assert begun.count(1) < begun.count(ITERATIONS)  # not all jobs begin anew
