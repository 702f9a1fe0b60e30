"""The number of cores is that available to this process."""

import os

import pytest

from mujoco_batches import process
from mujoco_batches.process import own_cpus, share_cpus, usable_cpus


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins no processes")
def test_usable_cpus_counts_only_the_affinity_of_the_process():
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert usable_cpus() == len(before)


def test_usable_cpus_counts_all_cores_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus() == 1
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert usable_cpus() == 12


def test_processes_of_a_machine_share_its_cores(monkeypatch):
    monkeypatch.setattr(process, "usable_cpus", lambda: 8)
    monkeypatch.setattr(process, "_sharers", 1)
    assert own_cpus() == 8
    for processes, each in ((2, 4), (3, 2), (9, 1)):
        share_cpus(processes)
        assert own_cpus() == each
