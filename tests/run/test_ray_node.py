"""A machine of a Ray cluster that fails: two nodes on this machine, with a worker each, of which one is killed."""

import contextlib
import importlib.util

import psutil
import pytest
from helpers import (
    QUICK,
    WAITING_ITERATIONS,
    WAITS,
    assert_same_policies,
    assert_same_tables,
    run,
    start_process,
    stop_at,
    write_candidates,
)

from envcoder_bench.run.workers import ray_cluster

HAS_RAY = importlib.util.find_spec("ray") is not None  # its import takes a second
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not HAS_RAY, reason="pip install 'envcoder-bench[ray]': no ray")]

WORDS = [
    *QUICK[4:], "--task", "Cartpole", "--num_envs_per_candidate", 8, "--learning_iterations", WAITING_ITERATIONS,
    "checkpoint_minutes=0", "task.env.episodeLength=40", "--no_baselines",
]  # fmt: skip


def test_waves_of_a_lost_node_are_retried_on_others(tmp_path):
    from ray.cluster_utils import Cluster

    go = tmp_path / "go"
    go.touch()
    waits = WAITS.replace("GO", str(go))
    files = write_candidates(tmp_path / "files", {"first": waits, "second": waits})  # a wave each
    alone = run(tmp_path / "alone", *WORDS, "--device", "cpu", "--candidates", *files)
    go.unlink()
    with ray_cluster._signal_handlers_kept():
        few = {"num_cpus": 1, "include_log_monitor": False, "no_monitor": True, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=few)
        raylet = psutil.Process(cluster.add_node(**few).all_processes["raylet"][0].process.pid)
    try:
        words = ["--ray", cluster.address, "--devices", "cpu:2", "--candidates", *files]
        head = start_process([*WORDS, *words], tmp_path / "run")

        def lost():
            if len(list((tmp_path / "run/jobs").glob("*.pth"))) < 2:
                return False
            for process in [raylet, *raylet.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            go.touch()
            return True

        code, told = stop_at(head, lost, 0)  # the head itself gets no signal
        assert code == 0, told
        assert "lost a worker" in told and "is retried on another worker" in told
    finally:
        cluster.shutdown()
    assert_same_tables(tmp_path / "run", alone)
    assert_same_policies(tmp_path / "run", alone, 2)
