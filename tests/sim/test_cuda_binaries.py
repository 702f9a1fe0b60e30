"""The kernels compile for CUDA. Without it, a machine without a GPU tests them on Warp's CPU device alone."""

import sys

import pytest
from warp_binaries import cuda_binaries


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="Warp has no compiler for CUDA there")
@pytest.mark.parametrize(
    "module, count", [("sim.mujoco_warp_kernels", 8), ("env.warp_guards", 4), ("core.noise_kernels", 2)]
)
def test_kernels_compile_for_cuda(module, count, tmp_path):
    kernels, files = cuda_binaries(f"envcoder_bench.{module}", tmp_path)
    assert kernels >= count and all(file.stat().st_size > 1000 for file in files) and files
