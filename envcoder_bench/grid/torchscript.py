"""TorchScript files, read only if their code does nothing but compute.

Loading a file runs parts of its code (default arguments, ``__setstate__``), so that the code is examined before, as
text.
"""

import io
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from envcoder_bench.compat.torch_archive import archive_records
from envcoder_bench.core.errors import UserError

# operators that read or write files, or speak to other processes; as words, because code can rename torch
_DENIED = re.compile(r"\b(from_file|save|load|classes|rpc_\w+)\b")
_CLASSES = re.compile(r"\btorch\s*\.\s*classes\b")  # of C++, which may do anything
# ops.NAMESPACE.NAME; other namespaces than these have operators for files, networks and processes
_OPS = re.compile(r"\bops\b(?!\.(?:prim|aten)\.)")
# getattr of an attribute whose name is not written as one word, and could be spelled with escapes or in parts
_GETATTR = re.compile(r"\bgetattr\b(?!\([^\"'#\n]*, \"\w+\"\))")


def load_torchscript(name: str, path: Path) -> Any:
    """Return the module of a TorchScript file, on the CPU; None if it is no such file.

    Raises:
        UserError: if its code could do more than compute.
    """
    content = path.read_bytes()  # once, so that what is loaded is what was examined
    records = archive_records(content)
    if records is None or not any(record.startswith("code/") for record in records):
        return None
    for record, data in records.items():
        if record.endswith((".py", ".pkl")):
            text = data.decode("latin-1")
            match = _CLASSES.search(text) if record.endswith(".pkl") else _unsafe(text)
            if match is not None:
                line = text.count("\n", 0, match.start()) + 1
                what = text[match.start() : match.start() + 40].split("\n")[0]
                raise UserError(
                    f"policy {name}: {path} is refused: its code could use files or other processes ({record}, line"
                    f" {line}: {what}); export it as ONNX, which only computes"
                )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.jit.load(io.BytesIO(content), map_location="cpu")
    except (RuntimeError, ValueError, EOFError):
        return None


def _unsafe(code: str) -> re.Match[str] | None:
    return _DENIED.search(code) or _OPS.search(code) or _GETATTR.search(code)
