"""Workers as Ray processes: killed, crashed by a candidate, or orphaned by a killed head."""

import contextlib
import importlib.util
import signal
from pathlib import Path

import psutil
import pytest
from helpers import (
    CANDIDATES,
    QUICK,
    WAITING_ITERATIONS,
    WAITS,
    assert_same_policies,
    assert_same_tables,
    refused,
    run,
    start_process,
    stop_at,
    write_candidates,
)

from envcoder_bench.cli import eval_shapers
from envcoder_bench.run.folder.run_folder import RunFolder
from envcoder_bench.run.workers import ray_cluster
from envcoder_bench.run.workers.devices import Devices

HAS_RAY = importlib.util.find_spec("ray") is not None  # its import takes a second
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_RAY, reason="pip install 'envcoder-bench[ray]': no ray")]

WORDS = [
    *QUICK[4:], "--task", "Cartpole", "--num_envs_per_candidate", 8, "--learning_iterations", WAITING_ITERATIONS,
    "checkpoint_minutes=0", "task.env.episodeLength=40",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    waits = WAITS.replace("GO", str(folder / "go"))
    return write_candidates(folder, {"waits": waits, "wide": CANDIDATES["wide"]})


@pytest.fixture(scope="module")
def alone(tmp_path_factory, files):
    """A run in one process."""
    (files[0].parent / "go").touch()
    return run(tmp_path_factory.mktemp("alone") / "run", *WORDS, "--device", "cpu", "--candidates", *files)


@pytest.fixture
def go(alone, files):
    """The file for which a candidate waits."""
    path = files[0].parent / "go"
    path.unlink()
    yield path
    path.touch()


@pytest.fixture(scope="module")
def ray():
    """Ray, started once for the runs of this process."""
    with ray_cluster.ray_started(Devices("cpu", 3)):
        yield


def assert_alike(output, alone):
    assert_same_tables(output, alone)
    assert_same_policies(output, alone, 4)


def test_ray_that_ends_is_started_again(tmp_path, alone, files, go):
    output, killed = tmp_path / "run", []
    head = start_process([*WORDS, "--devices", "cpu:1", "--candidates", *files], output)

    def reached():
        if list((output / "jobs").glob("*.pth")):
            killed.extend(p for p in psutil.Process(head.pid).children(recursive=True) if p.name() == "raylet")
            for process in killed:
                process.kill()
            go.touch()
        return bool(killed)

    code, told = stop_at(head, reached, 0)  # the head itself gets no signal
    assert code == 0, told
    assert "Ray's processes on this machine have ended: they are started again" in told
    assert_alike(output, alone)


def test_all_ports_are_on_the_loopback(ray):
    ports = []
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            ports += [one.laddr.ip for one in process.connections("tcp") if one.status == psutil.CONN_LISTEN]
    assert len(ports) > 3
    assert set(ports) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_ray_on_this_machine_starts_no_process_that_a_run_does_not_need(ray):
    files = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            files |= {Path(word).name for word in process.cmdline()}
    assert "raylet" in files and not files & {"dashboard.py", "monitor.py", "log_monitor.py"}


def test_workers_of_a_killed_head_end_and_the_run_resumes(tmp_path, alone, files, ray, go):
    output = tmp_path / "run"
    head = start_process([*WORDS, "--devices", "cpu:2", "--candidates", *files], output)
    family = []

    def reached():
        if list((output / "jobs").glob("*.pth")):
            # Ray's own agents take a minute to notice
            every = psutil.Process(head.pid).children(recursive=True)
            family[:] = [process for process in every if not process.name().endswith("Agent")]
        return bool(family)

    assert stop_at(head, reached, signal.SIGKILL)[0] == -signal.SIGKILL
    gone, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    assert len(gone) >= 4  # two servers of Ray and two workers
    assert RunFolder(output).load_checkpoint().jobs
    go.touch()
    assert eval_shapers.main(["--resume", str(output), "--devices", "cpu:1"]) == 0
    assert_alike(output, alone)


@pytest.mark.parametrize(
    "words, message",
    [
        ("--devices gpu", "--devices must be all"),
        ("--devices cpu:2 --device cpu", "--device chooses one device, and --devices or --ray several"),
        ("--ray 127.0.0.1:1", "--ray 127.0.0.1:1 does not answer"),
        ("--ray nowhere", "--ray must be auto or HOST:PORT"),
    ],
)
def test_bad_input_prints_one_line_and_returns_2(words, message, tmp_path, capsys):
    words = ["--task", "Cartpole", *words.split(), "--output_dir", tmp_path / "run"]
    assert message in refused(eval_shapers.main, words, capsys) and not (tmp_path / "run").exists()
