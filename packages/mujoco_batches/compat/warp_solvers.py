"""Linear solvers of Warp's tile kernels on CUDA, compiled each in a process of its own.

Uses ``build.build_lto_solver``, and methods of ``Module`` that generate a module's code. A kernel's compilation finds
the solvers in Warp's cache folder.

Why: Warp compiles them one after another, seconds each, while no other module can be generated.

Upstream: NVIDIA/warp issue 1228 (open), to choose Warp's own solvers, which compile quickly; issue 809 (open) is about
how long these take.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import warp as wp

from mujoco_batches.compat import difference, replaced, warn_once
from mujoco_batches.compat.warp_modules import Target
from mujoco_batches.compat.warp_start import start_warp

_BOOT = "import sys; sys.path[:] = {path!r}; from mujoco_batches.compat.warp_solvers import main; main()"
_ARGUMENTS = (
    *("M", "N", "K", "solver", "solver_enum", "side_enum", "diag_enum", "alayout", "blayout", "fill_mode", "arch"),
    *("precision_enum", "num_threads", "parameter_list", "builder"),
)


class Solvers:
    """The solvers of kernels that are not compiled yet; their compilation begins at once.

    Args:
        targets: modules, devices and sizes of blocks.
    """

    def __init__(self, targets: Iterable[Target]) -> None:
        self._of: dict[Target, list[subprocess.Popen]] = {}
        self._processes: dict[
            str, subprocess.Popen
        ] = {}  # processes by the solver that they compile; modules may share one
        self._stopped = False
        try:
            for target in targets:
                if _has_solvers(target[0]) and _is_missing(*target):
                    self._of[target] = [self._start(call) for call in _calls(*target)]
        except Exception as error:  # another version of Warp
            reason = f"{type(error).__name__}: {error}"
            warn_once("Warp's compilation of solvers", reason, "Warp compiles them one after another")

    def _start(self, call: str) -> subprocess.Popen:
        if call not in self._processes:
            self._processes[call] = _start(call)
        return self._processes[call]

    def wait_for(self, target: Target) -> bool:
        """Wait until a module can be compiled without compiling solvers; return False after ``stop``."""
        for process in self._of.get(target, ()):
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
    target = wp.get_device(device)
    folder = Path(str(wp.config.kernel_cache_dir)) / module.get_module_identifier(block_dim)
    return target.is_cuda and not (folder / module._get_compile_output_name(target, block_dim=block_dim)).is_file()


def _calls(module: Any, device: str, block_dim: int) -> list[str]:
    """Return the arguments with which Warp would compile a module's solvers, by generating its code without them."""
    from warp._src import build

    reason = difference(build, {"build_lto_solver": _ARGUMENTS})
    if reason:
        raise TypeError(reason)
    calls: dict[str, None] = {}

    # this function replaces the compiler: it records the call, and its result generates the same code
    def note(*arguments: Any, **more: Any) -> tuple[str, bytes]:
        calls[json.dumps(arguments[: _ARGUMENTS.index("builder")])] = None
        return "solver", b""

    with replaced(build, {"build_lto_solver": note}):
        module.get_module_hash(block_dim)
        arch = wp.get_device(device).get_cuda_compile_arch()
        module._run_codegen(module.resolved_options[block_dim] | {"output_arch": arch}, False)
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
