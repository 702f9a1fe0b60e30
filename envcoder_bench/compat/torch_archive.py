"""The files of ``torch.save`` and ``torch.jit.save``, read within limits.

In a crafted archive, Python's zipfile may see other records than torch. This module therefore uses torch's own reader,
which has no public name (https://github.com/pytorch/pytorch, caffe2/serialize/inline_container.h). torch 2.11 and older
do not tell the size of a record; there zipfile's is taken, if it sees the records that torch sees.
"""

import io
import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor
from torch.jit._recursive import wrap_cpp_module

_ZIP = b"PK\x03\x04"  # files that begin with something else are read by other loaders of torch
# bytes by which the content may exceed the file: torch compresses only TorchScript's code
_ALLOWANCE = 64 << 20
_ARRAY = re.compile(rb"c(__builtin__|builtins)\nbytearray\n")


class ArchiveError(ValueError):
    """A file is damaged, or expands to far more bytes than it has."""


def load_plain(file: Path | BinaryIO) -> Any:
    """Return the value that ``torch.save`` wrote, on the CPU, if it is plain data.

    Raises:
        ArchiveError: a checksum is wrong, or the content could take all memory.
        Exception: anything else that torch's reader raises for a damaged file.
    """
    if isinstance(file, Path):
        with file.open("rb") as content:
            return load_plain(content)
    limit = file.seek(0, os.SEEK_END) + _ALLOWANCE
    file.seek(0)
    is_archive = file.read(len(_ZIP)) == _ZIP
    file.seek(0)
    if is_archive:
        reader = torch._C.PyTorchFileReader(file)
        _refuse_large(reader, file, limit)
        pickled = reader.get_record("data.pkl")
        with zipfile.ZipFile(file) as parts:  # torch.load does not compare the checksums that torch.save writes
            changed = parts.testzip()
        if changed is not None:
            raise ArchiveError(f"the checksum of {changed} is wrong")
    else:
        pickled = file.read()
    if _ARRAY.search(pickled):
        raise ArchiveError("it makes a bytearray, whose length can be any number")
    file.seek(0)
    saved = torch.load(file, map_location="cpu", weights_only=True)
    size = sum(x.numel() * x.element_size() for x in _tensors(saved))
    if size > limit:  # a single number can be expanded to any shape
        raise ArchiveError(f"its tensors take {size >> 20:,} MiB, and it has {limit - _ALLOWANCE >> 10:,} KiB")
    return saved


def archive_records(content: bytes) -> dict[str, bytes] | None:
    """Return the records of an archive by name; None if the content is not an archive.

    Raises ArchiveError as ``load_plain`` does.
    """
    if not content.startswith(_ZIP):
        return None
    try:
        file = io.BytesIO(content)
        reader = torch._C.PyTorchFileReader(file)
        _refuse_large(reader, file, len(content) + _ALLOWANCE)
        return {record: reader.get_record(record) for record in reader.get_all_records()}
    except (RuntimeError, zipfile.BadZipFile):
        return None


def load_script(content: bytes) -> tuple[Any, str, dict[str, Any]]:
    """Return the module of a TorchScript file, on the CPU, the name of its forward, and the graphs of all functions.

    ``torch.jit.load`` does not give the functions that the module calls. Raises RuntimeError if torch cannot read it.
    """
    units: Any = torch._C.CompilationUnit()
    read: Any = torch._C.import_ir_module_from_buffer
    with warnings.catch_warnings(action="ignore"):
        module = read(units, content, torch.device("cpu"), {}, False)
        wrapped = wrap_cpp_module(module)
    graphs = {function.qualified_name: function.graph for function in units.get_functions()}
    return wrapped, f"{module._type().qualified_name()}.forward", graphs


def class_name(kind: Any) -> str | None:
    """Return the full name of a class in a graph of TorchScript; None for another type."""
    return kind.qualified_name() if isinstance(kind, torch._C.ClassType) else None


def _refuse_large(reader: Any, file: BinaryIO, limit: int) -> None:
    names = reader.get_all_records()
    if hasattr(reader, "get_record_size"):
        size = sum(map(reader.get_record_size, names))
    else:  # torch 2.11 and older do not tell it
        with zipfile.ZipFile(file) as parts:
            sizes = {part.filename.partition("/")[2]: part.file_size for part in parts.infolist()}
        if len(parts.infolist()) != len(sizes) or sizes.keys() != set(names):
            raise ArchiveError("its directory has other parts than torch reads")
        size = sum(sizes.values())
    if size > limit:
        raise ArchiveError(f"its parts take {size >> 20:,} MiB, and it has {limit - _ALLOWANCE >> 10:,} KiB")


def _tensors(value: Any) -> list[Tensor]:
    """Return the different tensors in nested plain data."""
    tensors: dict[int, Tensor] = {}
    waiting, visited = [value], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            tensors[id(value)] = value
        elif isinstance(value, (dict, list, tuple, set)) and id(value) not in visited:
            visited.add(id(value))
            waiting += value.values() if isinstance(value, dict) else value
    return [*tensors.values()]
