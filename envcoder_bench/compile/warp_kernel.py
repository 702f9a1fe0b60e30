"""Warp kernels around C code. Warp evaluates annotations, so this module must not postpone them.

It does not import torch, so that the processes that compile start quickly.
"""

import functools
from pathlib import Path
from typing import Any

import warp as wp

from mujoco_batches.compat.warp_cache import is_intact
from mujoco_batches.compat.warp_start import start_warp

BLOCK = 64  # threads; few, because programs use many registers and groups have few environments
# no fused multiply-add: torch rounds after every operation. Warp's default level of 3 takes longer to compile, and the
# functions are 2 % of a step
_OPTIONS = {"fuse_fp": False, "block_dim": BLOCK, "optimization_level": 2}


start_warp()


@functools.cache
def make_kernel(code: str) -> Any:
    """Return a Warp kernel that runs C ``code`` for each thread ``tid``, with an int64 array ``table``."""

    @wp.func_native(code)
    def run(tid: int, table: wp.array(dtype=wp.int64)): ...  # pyright: ignore

    @wp.kernel(enable_backward=False, module="unique", module_options=_OPTIONS)
    def kernel(table: wp.array(dtype=wp.int64)):  # pyright: ignore
        run(wp.tid(), table)

    return kernel


def is_built(kernel: Any, target: str) -> bool:
    """Return whether Warp's cache has the kernel's binary for a target, as ``target`` gives it, undamaged."""
    module, dim = kernel.module, 1 if target == "cpu" else BLOCK
    try:
        if target == "cpu":
            name = module._get_compile_output_name(wp.get_device("cpu"), block_dim=dim)
        else:
            arch, kind = target.split()
            name = module._get_compile_output_name(None, int(arch), use_ptx=kind == "ptx", block_dim=dim)
        folder = kernel_folder() / module.get_module_identifier(block_dim=dim)
        return is_intact(folder / name) and is_intact(folder / module._get_meta_name(block_dim=dim))
    except AttributeError:  # another version of Warp: building again costs little
        return False


def kernel_folder() -> Path:
    """Return Warp's cache folder."""
    return Path(str(wp.config.kernel_cache_dir))


def target(device: str) -> str:
    """Return the target of ``build``: ``cpu``, or a CUDA architecture and the kind of binary, such as ``90 cubin``."""
    wp_device = wp.get_device(device)
    if not wp_device.is_cuda:
        return "cpu"
    return f"{wp_device.get_cuda_compile_arch()} {'ptx' if wp_device.get_cuda_output_format() == 'ptx' else 'cubin'}"


def build(code: str, target: str) -> None:
    """Compile ``make_kernel(code)`` into Warp's cache; needs no device."""
    module = make_kernel(code).module
    if target == "cpu":
        wp.force_load("cpu", [module], block_dim=BLOCK)
    else:
        arch, kind = target.split()
        wp.compile_aot_module(module, arch=int(arch), use_ptx=kind == "ptx")
