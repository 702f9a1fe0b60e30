"""The scripts import each other as when one of them is run: paths, and the fakes of the product's tests."""

import os
import sys
from pathlib import Path

import pytest
import torch

os.environ["RAY_prestart_worker_first_driver"] = "0"  # noqa: SIM112, else Ray starts a process per core for nothing
ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / name) for name in ("benchmarks", "scripts", "tests/fakes")]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setenv("ENVCODER_BENCH_VIDEO", "0")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
