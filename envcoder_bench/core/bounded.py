"""Readers of JSON and arrays from untrusted files, with limits: a small file can expand to more than the memory."""

import io
import json
import zipfile
import zlib
from typing import Any

import numpy as np

MAX_DEPTH = 50  # levels of lists and mappings in JSON
MAX_ARRAYS = 256 << 20  # bytes of the arrays of a file
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # compression methods that numpy writes


class TooDeepError(ValueError):
    """JSON has more levels than MAX_DEPTH."""

    def __init__(self) -> None:
        super().__init__(f"it is JSON of more than {MAX_DEPTH} levels")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON of at most MAX_DEPTH levels. Raises TooDeepError, or another ValueError."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise TooDeepError from None
    # level by level: JSON can be deeper than Python's recursion
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        nodes = [node for node in level if isinstance(node, (dict, list))]
        if not nodes:
            return value
        level = [part for node in nodes for part in (node if isinstance(node, list) else node.values())]
    raise TooDeepError


def read_arrays(content: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a file ``.npz`` by name.

    Raises:
        ValueError: it is damaged, has objects, or its arrays take more than MAX_ARRAYS bytes.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = archive.infolist()
        if any(part.compress_type not in _METHODS for part in parts):
            raise ValueError("it is compressed by a method that numpy does not use")
        size = sum(part.file_size for part in parts)  # reading stops at these sizes
        if size > MAX_ARRAYS:
            raise ValueError(f"its arrays take {size >> 20:,} MiB, more than the limit of {MAX_ARRAYS >> 20} MiB")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    # MemoryError: a header can ask for any number of bytes
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, KeyError, RuntimeError, MemoryError) as error:
        raise ValueError(f"it is damaged: {error}") from error
