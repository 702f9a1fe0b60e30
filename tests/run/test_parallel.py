"""Runs with several workers, as threads of this process, are bitwise equal to runs without workers."""

import contextlib
import io
import json
import random
import time

import pytest
import torch

import envcoder_bench
from envcoder_bench.run import parallel
from envcoder_bench.run.folder import RunFolder
from envcoder_bench.run.head import Head, Lost, Pool
from envcoder_bench.run.hooks import Reporter, StopRequest
from envcoder_bench.run.worker import Finished, Saved, Setup, Train, Worker, code_digest

pytestmark = pytest.mark.slow

CANDIDATES = {
    "breaks_at_once": "def compute_reward(:\n",
    "breaks_midway": """
def compute_reward(progress_buf, pole_angle):
    if bool((progress_buf > 25).any()):
        raise RuntimeError("on purpose")
    return torch.cos(pole_angle)
""",
    "cosine": """
def compute_reward(pole_angle, actions):
    c = torch.cos(pole_angle)
    return c - 0.1 * actions[:, 0], {"cosine": c}
""",
    "wide": """
def compute_observation(state_dict):
    x = torch.cat([state_dict["dof_pos"], state_dict["dof_vel"], state_dict["actions"]], dim=-1)
    return torch.cat([x, torch.sin(x), torch.cos(x)], dim=-1)
""",
}
ITERATIONS = 6
SETTINGS = {
    "sim": "mujoco_cpu", "device": "cpu", "num_envs_per_candidate": 8, "learning_iterations": ITERATIONS, "seeds": 2,
    "checkpoint_minutes": 0, "compile_shapers": False,
    "overrides": {
        "evaluation.num_envs": 3, "evaluation.final_episodes": 6, "evaluation.points": 3, "task.env.episodeLength": 40,
    },
}  # fmt: skip
MEASURED = 4 * 3  # policy.pth and both seeds' of the two baselines, cosine and wide


class Threads(Pool):
    """Workers as threads; ``fate`` may end one when it has sent a message, which is lost then."""

    def __init__(self, size, setup, fate):
        self.size, self.setup, self.fate, self.count = size, setup, fate, 0
        self.workers = {}
        for _ in range(size):
            self._start()

    def _start(self):
        self.workers[self.count] = Worker(self.setup)
        self.count += 1

    @property
    def starting(self):
        return self.size - len(self.head.ready)

    def begin(self, worker, order):
        self.workers[worker].begin(order)

    def stop(self, by):
        for worker in self.workers.values():
            worker.stop(by)

    def discard(self, worker):
        self.workers.pop(worker).stop("discarded")
        self._start()

    def poll(self):
        found = []
        for number, worker in list(self.workers.items()):
            for message in worker.poll():
                death = self.fate(message)
                if death is not None:
                    self.discard(number)
                    found.append((number, death))
                    break
                found.append((number, message))
        return found

    def close(self):
        self.stop("closed")


@pytest.fixture
def threads(monkeypatch):
    """Let runs have such workers; returns how to end them."""
    fates = [lambda message: None]

    @contextlib.contextmanager
    def workers(cfg, devices, fitness, groups):
        pool = Threads(min(devices.count, groups), Setup(cfg, fitness), lambda message: fates[-1](message))
        pool.head = head = Head(pool, code_digest(cfg))
        head.gather()
        try:
            yield head
        finally:
            pool.close()

    monkeypatch.setattr(parallel, "workers", workers)
    return fates.append


def settings(count, **others):
    return {**SETTINGS, "device": "auto", "sim": "auto", "devices": f"cpu:{count}", **others}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=folder, **SETTINGS)
    return folder


def assert_alike(folder, alone, without=()):
    """All files are bitwise the same, but for the rows and policies of these candidates."""
    for name in ("results.csv", "curves.csv", "components.csv", "points.csv"):
        rows = [(own / name).read_bytes().splitlines() for own in (folder, alone)]
        for one in without:
            rows = [[row for row in own if f"{one}," not in row.decode()] for own in rows]
        assert rows[0] == rows[1], name
    policies = sorted(path.relative_to(alone) for path in alone.rglob("*.pth"))
    policies = [path for path in policies if not set(path.parts) & set(without)]
    assert len(policies) == MEASURED
    assert sorted(path.relative_to(folder) for path in folder.rglob("*.pth")) == policies
    for path in policies:
        a, b = (torch.load(own / path, weights_only=False)["model"] for own in (folder, alone))
        assert all(torch.equal(a[key], b[key]) for key in a) and a.keys() == b.keys()
    ranking = [json.loads((own / "summary.json").read_text())["ranking"] for own in (folder, alone)]
    if not without:
        assert ranking[0] == ranking[1]
    assert not (folder / "jobs").exists()


@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_workers_in_any_order_ends_as_one_process(tmp_path, alone, threads, count, monkeypatch):
    chance, orders, begin = random.Random(count), [], Threads.begin
    monkeypatch.setattr(Threads, "begin", lambda pool, worker, own: (orders.append(own), begin(pool, worker, own)))

    def late(message):
        time.sleep(0.02 * chance.random())

    threads(late)
    result = envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=tmp_path / "run", **settings(count))
    assert_alike(tmp_path / "run", alone)
    assert result.summary["memory"]["waves"] == count
    assert set(result.results.status) == {"ok", "failed", "failed at load"}
    for order in [own for own in orders if isinstance(own, Train)]:  # all that a worker without the files needs
        assert {source.name for source in order.sources} >= {"human", "unshaped", *(name for name, _ in order.keys)}


def test_workers_that_die_at_random_change_nothing(tmp_path, alone, threads, caplog):
    chance, deaths = random.Random(0), []

    def fate(message):
        if isinstance(message, (Saved, Finished)) and len(deaths) < 3 and chance.random() < 0.3:
            deaths.append(message)
            return Lost("killed by the test")

    threads(fate)
    envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=tmp_path / "run", **settings(2))
    assert deaths
    assert "killed by the test: its wave of" in caplog.text
    assert_alike(tmp_path / "run", alone)


def test_a_candidate_that_kills_is_found_by_halving_and_the_others_end_as_without_it(tmp_path, alone, threads):
    def fate(message):
        if isinstance(message, Saved) and message.iteration >= 3 and holds(message.state, "cosine", 1):
            return Lost("its process died")

    threads(fate)
    result = envcoder_bench.evaluate("Cartpole", CANDIDATES, output_dir=tmp_path / "run", **settings(1))
    rows = result.results.set_index(["candidate", "seed"])
    assert rows.loc[("cosine", 1), "status"] == "failed"
    assert rows.loc[("cosine", 1), "error"] == "the process that trained it ended, twice: its process died"
    assert rows.loc[("cosine", 0), "status"] == "ok"
    assert_alike_but_for_one_seed(tmp_path / "run", alone)


def holds(state, *group):
    groups = torch.load(io.BytesIO(state), weights_only=True)["groups"]
    return group in [tuple(own) for own in groups]


def assert_alike_but_for_one_seed(folder, alone):
    def rows(own, name):
        return [row for row in (own / name).read_text().splitlines() if "cosine,1," not in row]

    for name in ("results.csv", "curves.csv", "components.csv", "points.csv"):
        assert rows(folder, name) == rows(alone, name), name


class StopAt(Reporter):
    def __init__(self, iteration):
        self.iteration, self.stop = iteration, StopRequest()

    def iteration_done(self, iteration, env_steps, best):
        if iteration >= self.iteration:
            self.stop("test")


@pytest.mark.parametrize("first, then", [("cpu:3", "cpu:2"), ("cpu:2", None), (None, "cpu:2")])
def test_a_stopped_run_goes_on_with_other_devices(tmp_path, alone, threads, first, then):
    """None: in one process without workers."""
    output, reporter = tmp_path / "run", StopAt(ITERATIONS // 2)
    asked = {**SETTINGS} if first is None else settings(1, devices=first)
    stopped = envcoder_bench.evaluate(
        "Cartpole", CANDIDATES, output_dir=output, reporter=reporter, stop=reporter.stop, **asked
    )
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
