"""Binaries of Warp's kernels for CUDA, which Warp's own compiler makes on machines without a GPU, too."""

import importlib

import warp as wp


def cuda_binaries(module, folder):
    """Compile the kernels of a Python module for an H100 into ``folder``; return the number of kernels and the files.

    Raises an error for what the compiler refuses, such as more than 32 kB of parameters.
    """
    kernels = [x for x in vars(importlib.import_module(module)).values() if isinstance(x, wp.Kernel)]
    for warp_module in {kernel.module for kernel in kernels}:
        wp.compile_aot_module(warp_module, arch=90, module_dir=folder, use_ptx=False)
    return len(kernels), [*folder.glob("*.cubin")]
