"""A machine of a Ray cluster that fails: two nodes on this machine, with a worker each, of which one is killed."""

import contextlib

import psutil
from helpers import assert_same_policies, assert_same_tables, run, write_candidates
from test_ray_pool import WAITS, WORDS, pytestmark, when  # noqa: F401, the marks

from envcoder_bench.run.workers import ray_cluster


def test_waves_of_a_lost_node_are_retried_on_others(tmp_path, capsys):
    from ray.cluster_utils import Cluster

    go = tmp_path / "go"
    go.touch()
    waits = WAITS.replace("GO", str(go))
    files = write_candidates(tmp_path / "files", {"first": waits, "second": waits})  # a wave each
    alone = run(tmp_path / "alone", *WORDS, "--device", "cpu", "--candidates", *files)
    go.unlink()
    with ray_cluster._signal_handlers_kept():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        raylet = psutil.Process(cluster.add_node(num_cpus=1).all_processes["raylet"][0].process.pid)

    def kill():
        for process in [raylet, *raylet.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        go.touch()

    try:
        with when(lambda: len(list((tmp_path / "run/jobs").glob("*.pth"))) == 2, kill):
            run(tmp_path / "run", *WORDS, "--ray", cluster.address, "--devices", "cpu:2", "--candidates", *files)
        told = capsys.readouterr().err
        assert "lost a worker" in told and "is retried on another worker" in told
    finally:
        cluster.shutdown()
    assert_same_tables(tmp_path / "run", alone)
    assert_same_policies(tmp_path / "run", alone, 2)
