"""Settings of the process: saving and restoring of torch's settings, and a lock."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._tensor_str import PRINT_OPTS

# Hydra, rl_games' registry and redirected streams belong to the process: of several runs in threads, only one at a time
# may use them. Training on a CPU does not need the lock.
ALONE = threading.RLock()
_lock = threading.Lock()
_inside = 0  # number of open blocks in all threads
_before: dict[str, Any] = {}  # the settings before the first open block
_deterministic = False


@contextmanager
def settings_kept() -> Iterator[None]:
    """Restore torch's settings after the block, or after the last of several blocks that overlap in threads.

    Covers the number of threads (one setting per thread), the precision of matrix products, cuDNN's benchmark mode,
    ``use_deterministic_algorithms`` and print options. For random generators see ``core.stream``.
    """
    global _inside, _before
    threads = torch.get_num_threads()  # read before it is set: the first read in a thread gives the process' number
    with _lock:
        if not _inside:
            _before = _read()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            torch.set_num_threads(threads if _inside else _before["threads"])
            if not _inside:
                _restore(_before)


def use_deterministic_algorithms() -> None:
    """Make simulators, environments and trainers that are created from now on deterministic on CUDA."""
    global _deterministic
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    _deterministic = True


def is_deterministic() -> bool:
    return _deterministic


@contextmanager
def deterministic_torch() -> Iterator[None]:
    """Use torch's deterministic algorithms inside the block; other operations warn.

    Use it for code of others: some operations of this program would be slower, and none more exact.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    filling: Any = torch.utils.deterministic
    fills, filling.fill_uninitialized_memory = filling.fill_uninitialized_memory, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        filling.fill_uninitialized_memory = fills


def _read() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "precision": torch.get_float32_matmul_precision(),
        "matmul_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic": _deterministic,
        "printing": dict(vars(PRINT_OPTS)),
    }


def _restore(settings: dict[str, Any]) -> None:
    global _deterministic
    _deterministic = settings["deterministic"]
    torch.set_float32_matmul_precision(settings["precision"])
    torch.backends.cuda.matmul.allow_tf32 = settings["matmul_tf32"]
    torch.backends.cudnn.allow_tf32 = settings["cudnn_tf32"]
    torch.backends.cudnn.benchmark = settings["cudnn_benchmark"]
    vars(PRINT_OPTS).update(settings["printing"])
