"""Compile the linear solvers of Warp's tile kernels on CUDA, each in a process of its own.

Warp compiles them one after another, seconds each, while no other module can be generated. It keeps them in its cache
folder, where a kernel's compilation finds them.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import warp as wp

from envcoder_bench.core.warp_start import start_warp

_BOOT = "import sys; sys.path[:] = {path!r}; from envcoder_bench.sim.warp_solvers import main; main()"


class Solvers:
    """The solvers of kernels that are not compiled yet; their compilation begins at once.

    Args:
        wanted: modules, devices and block sizes.
    """

    def __init__(self, wanted: Iterable[tuple[Any, str, int]]) -> None:
        self._of: dict[tuple[Any, str, int], list[subprocess.Popen]] = {}
        self._processes: dict[str, subprocess.Popen] = {}  # by what they compile, which modules may share
        self._stopped = False
        with contextlib.suppress(Exception):  # another version of Warp, which then compiles them itself
            for one in wanted:
                if _has_solvers(one[0]) and _is_missing(*one):
                    self._of[one] = [self._start(call) for call in _calls(*one)]

    def _start(self, call: str) -> subprocess.Popen:
        if call not in self._processes:
            self._processes[call] = _start(call)
        return self._processes[call]

    def wait_for(self, one: tuple[Any, str, int]) -> bool:
        """Wait until a module can be compiled without compiling solvers; return False after ``stop``."""
        for process in self._of.get(one, ()):
            process.wait()
        return not self._stopped

    def stop(self) -> None:
        """End the processes."""
        self._stopped = True
        for process in self._processes.values():
            process.kill()
            process.wait()


def _has_solvers(module: Any) -> bool:
    return any("wp.tile_cholesky" in kernel.adj.source for kernel in module.kernels.values())


def _is_missing(module: Any, device: str, block_dim: int) -> bool:
    """Return whether a module would have to be compiled for a device, and its solvers with it."""
    own = wp.get_device(device)
    folder = Path(str(wp.config.kernel_cache_dir)) / module.get_module_identifier(block_dim)
    return own.is_cuda and not (folder / module._get_compile_output_name(own, block_dim=block_dim)).is_file()


def _calls(module: Any, device: str, block_dim: int) -> list[str]:
    """Return the arguments with which Warp would compile a module's solvers, by generating its code without them."""
    from warp._src import build

    calls: dict[str, None] = {}
    usual = build.build_lto_solver

    def note(*given: Any, **more: Any) -> tuple[str, bytes]:
        calls[json.dumps(given[:14])] = None  # the rest is of the builder
        return "solver", b""

    build.build_lto_solver = note
    try:
        module.get_module_hash(block_dim)
        arch = wp.get_device(device).get_cuda_compile_arch()
        module._run_codegen(module.resolved_options[block_dim] | {"output_arch": arch}, False)
    finally:
        build.build_lto_solver = usual
    return list(calls)


def _start(call: str) -> subprocess.Popen:
    order = json.dumps([str(wp.config.kernel_cache_dir), json.loads(call)])
    words = [sys.executable, "-c", _BOOT.format(path=sys.path), order]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(words, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)


def main() -> None:
    """Compile the solver that the command line names, in a process of its own."""
    from warp._src import build

    start_warp()
    wp.config.kernel_cache_dir, call = json.loads(sys.argv[1])
    compile_solver: Any = build.build_lto_solver
    compile_solver(*call, SimpleNamespace(ltoirs={}, ltoirs_decl={}, fatbins={}))
