"""Workers as Ray processes: killed, crashed by a candidate, or orphaned by a killed head."""

import contextlib
import importlib.util
import signal
import threading
import time

import psutil
import pytest
from helpers import (
    CANDIDATES,
    QUICK,
    TINY_WORDS,
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

HAS_RAY = importlib.util.find_spec("ray") is not None  # its import takes a second
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_RAY, reason="pip install 'envcoder-bench[ray]': no ray")]

WORDS = [
    *QUICK[4:], "--task", "Cartpole", "--num_envs_per_candidate", 4, "--learning_iterations", WAITING_ITERATIONS,
    "checkpoint_minutes=0", "--no_baselines", *TINY_WORDS,
]  # fmt: skip
WAITS = WAITS.replace("150", "24")


@contextlib.contextmanager
def when(reached, act):
    """Do something within the block, in another thread, once ``reached()``."""
    ended, acted = threading.Event(), []

    def watch():
        while not ended.is_set() and not acted:
            if reached():
                acted.append(act())
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert acted


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


def assert_alike(output, alone):
    assert_same_tables(output, alone)
    assert_same_policies(output, alone, 2)


def test_ray_listens_on_the_loopback_and_is_started_again_when_it_ends(tmp_path, alone, files, go, capsys):
    output, ports = tmp_path / "run", []

    def kill():
        family = psutil.Process().children(recursive=True)
        for process in [psutil.Process(), *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                ports.extend(x.laddr.ip for x in process.connections("tcp") if x.status == psutil.CONN_LISTEN)
        for process in family:
            if process.name() == "raylet":
                process.kill()
        go.touch()

    with when(lambda: list((output / "jobs").glob("*.pth")), kill):
        run(output, *WORDS, "--devices", "cpu:1", "--candidates", *files)
    assert "Ray's processes on this machine have ended: they are started again" in capsys.readouterr().err
    assert_alike(output, alone)
    assert len(ports) > 3
    assert set(ports) <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


def test_workers_of_a_killed_head_end_and_the_run_resumes(tmp_path, alone, files, go):
    output = tmp_path / "run"
    head = start_process([*WORDS, "--devices", "cpu:1", "--candidates", *files], output)
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
    assert len(gone) > 2
    assert RunFolder(output).load_checkpoint().jobs
    go.touch()
    config = output / "config.yaml"  # without workers
    config.write_text(config.read_text().replace("devices: cpu:1", "devices: null"))
    assert eval_shapers.main(["--resume", str(output)]) == 0
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
