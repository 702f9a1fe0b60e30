"""The kernels compile for CUDA. Without it, a machine without a GPU tests them on Warp's CPU device alone."""

import sys

import pytest
from warp_binaries import cuda_binaries


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="Warp has no compiler for CUDA there")
@pytest.mark.parametrize(
    "module, count",
    [("engine.cuda_kernels", 16), ("physics.warp_contacts", 2), ("physics.contacts.narrowphase", 1)],
)
def test_kernels_compile_for_cuda(module, count, tmp_path):
    kernels, files = cuda_binaries(f"mujoco_batches.{module}", tmp_path)
    assert kernels >= count and all(file.stat().st_size > 1000 for file in files) and files
