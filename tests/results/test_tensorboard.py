import os
import struct
import threading

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX.record_writer import masked_crc32c

from envcoder_bench.results import tensorboard as own
from envcoder_bench.results.tensorboard import TensorboardLog


def scalars(folder):
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    read.Reload()
    return {tag: [(e.step, pytest.approx(e.value)) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


@pytest.mark.parametrize("data", [b"", b"123456789", bytes(range(256)) * 3])
def test_checksum_is_that_of_tensorboardx(data):
    assert own._checksum(data) == struct.pack("<I", masked_crc32c(data))


def test_scalars_round_trip_per_candidate_and_seed(tmp_path):
    log = TensorboardLog(tmp_path)
    for step in (100, 200, 2**40):
        for seed in (0, 1):
            log.add(
                "a", seed, step, {"fitness": 0.1 + seed if step > 100 else None, "kl": 1e-9, "reward/x": float("nan")}
            )
    log.close()
    assert scalars(tmp_path / "a" / "seed_0") == {
        "fitness": [(200, 0.1), (2**40, 0.1)],
        "kl": [(100, 1e-9), (200, 1e-9), (2**40, 1e-9)],
    }
    assert scalars(tmp_path / "a" / "seed_1")["fitness"] == [(200, 1.1), (2**40, 1.1)]


def test_scalars_are_flushed_at_evaluations_and_on_close(tmp_path):
    log = TensorboardLog(tmp_path)
    log.add("a", 0, 1, {"kl": 1.0})
    log.add("a", 0, 2, {"kl": 2.0, "fitness": 0.5})
    assert scalars(tmp_path / "a" / "seed_0")["kl"] == [(1, 1.0), (2, 2.0)]
    log.add("a", 0, 3, {"kl": 3.0})
    log.close()
    assert scalars(tmp_path / "a" / "seed_0")["kl"][-1] == (3, 3.0)


@pytest.mark.parametrize("torn", [0, 5])
def test_resumed_run_replaces_scalars_after_its_checkpoint(tmp_path, torn):
    log = TensorboardLog(tmp_path)
    for step in range(10, 60, 10):
        log.add("a", 0, step, {"fitness": 0.0, "kl": 1.0})
    (file,) = (tmp_path / "a" / "seed_0").iterdir()
    file.write_bytes(file.read_bytes()[: file.stat().st_size - torn])  # killed: never closed, perhaps half an event
    for _ in range(2):
        log = TensorboardLog(tmp_path)
        for step in range(30, 80, 10):
            log.add("a", 0, step, {"fitness": 5.0, "kl": 2.0})
        log.close()
    expected = [(10, 0.0), (20, 0.0), (30, 5.0), (40, 5.0), (50, 5.0), (60, 5.0), (70, 5.0)]
    assert scalars(tmp_path / "a" / "seed_0")["fitness"] == expected


@pytest.mark.slow
def test_1000_candidates_need_no_threads_and_few_open_files(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    threads = threading.active_count()
    log = TensorboardLog(tmp_path)
    highest = max(map(int, os.listdir("/proc/self/fd")))  # other tests of this process may have left some open
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 32, hard))
    try:
        for k in range(1000):
            log.add(f"c{k:03d}", 0, 1, {"fitness": float(k)})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert threading.active_count() <= threads
    log.close()
    assert scalars(tmp_path / "c999" / "seed_0")["fitness"] == [(1, 999.0)]
