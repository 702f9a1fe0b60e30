"""Warp's cache of compiled modules: an object that is not as it was written is compiled again.

Replaces ``Module._compile`` and ``Module._write_meta``. Beside each file that is loaded is one more, ``.sha256``, with
the digests of what was written there; it is a list, because several processes may write one object.

Why: Warp loads what is in its cache. An object that a full disk, a crash or a copy has cut off or changed ends the
process by a signal, and does so again at the next start.

Upstream: no issue was found.

This file does not import torch, so that processes that compile start quickly.
"""

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import warp as wp

from mujoco_batches.compat import difference, warn_once

_OBJECTS = (".o", ".cubin", ".ptx", ".meta")
_DIGESTS = ".sha256"


def is_intact(path: Path) -> bool:
    """Return whether a file in Warp's cache is there and as it was written."""
    try:
        return _digest(path) in _beside(path).read_text("ascii").split()
    except (OSError, ValueError):
        return False


def check_objects() -> None:
    """Compare objects with their digests before Warp loads them, from now on in this process."""
    try:
        from warp._src.context import Module
    except ImportError:
        Module = None
    reason = difference(Module, {"_compile": ("self", "device", "output_dir"), "_write_meta": ("output_meta_path",)})
    if reason or Module is None:
        warn_once("Warp's Module", reason, "damaged files in Warp's cache are not noticed")
        return
    compile_module, write_meta = Module._compile, Module._write_meta

    def checked_compile(self: Any, device: Any = None, output_dir: Any = None, *rest: Any, **more: Any) -> bool:
        folder = output_dir or Path(str(wp.config.kernel_cache_dir)) / self.get_module_identifier()
        _remove_damaged(Path(folder))
        return compile_module(self, device, output_dir, *rest, **more)

    def noted_meta(output_meta_path: Any, meta: Any) -> None:
        write_meta(output_meta_path, meta)
        _note_digests(Path(output_meta_path).parent)

    Module._compile, Module._write_meta = checked_compile, staticmethod(noted_meta)


def _remove_damaged(folder: Path) -> None:
    """Remove the objects of a module that are not as they were written, so that Warp compiles it."""
    with contextlib.suppress(OSError):  # no such folder, or it cannot be written
        for path in folder.iterdir():
            if path.suffix in _OBJECTS and not is_intact(path):
                path.unlink()


def _note_digests(folder: Path) -> None:
    """Note the digests of the objects in a folder, which Warp then renames or moves to the module's folder."""
    suffix = f"_p{os.getpid()}_t{threading.get_ident()}"
    final_folder = folder.with_name(folder.name.removesuffix(suffix))
    for path in [path for path in folder.iterdir() if path.suffix in _OBJECTS]:
        for target in {folder, final_folder}:
            # written before the object, so that no process finds an object without its digest
            with contextlib.suppress(OSError), open(_beside(target / path.name), "a", encoding="ascii") as file:
                file.write(f"{_digest(path)}\n")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _beside(path: Path) -> Path:
    return path.with_name(path.name + _DIGESTS)
