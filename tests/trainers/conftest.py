import pytest
import torch
from kernel_device import INTERPRETED

from envcoder_bench.trainers.ppo import backend, mlp

torch.set_num_threads(1)  # these tests are many small operations: threads would only wait for each other


@pytest.fixture(autouse=True)
def kernels_run_where_triton_interprets_them(request, monkeypatch):
    """Let the learner use its kernels on the CPU, which it otherwise does on CUDA alone."""
    if INTERPRETED and request.node.get_closest_marker("kernels"):
        monkeypatch.setattr(backend, "usable_on", lambda device, dtype: dtype == torch.float32)
        monkeypatch.setattr(mlp, "_ELU_CPU", mlp.ELU)
