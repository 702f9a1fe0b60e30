"""Files that are either the old ones or the new ones, never half of one; and what to say where none can be written."""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

# what can be wrong with a disk or a folder, and is no mistake of this program
_SURROUNDINGS = frozenset(
    getattr(errno, name)
    for name in (
        "ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EACCES", "EPERM", "EIO", "ENAMETOOLONG", "ENOTDIR", "EISDIR", "ELOOP",
        "EMFILE", "ENFILE", "ESTALE",
    )
    if hasattr(errno, name)
)  # fmt: skip


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Let an OSError raised inside name this file: one of a write or a flush names none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Replace a file's content in one step; a writer killed midway leaves the old file as it was.

    Text is written as UTF-8 with its line ends as they are. The temporary file has a fixed name beside the target, so
    that a killed writer's remains are overwritten by the next one; a run has its folder for itself.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with naming(path), open(temporary, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if temporary.exists():
            temporary.unlink()
        raise


def disk_trouble(error: OSError, folder: Path | None = None) -> str:
    """Say in a line which file cannot be used and why; empty where neither the disk nor ``folder`` is the reason.

    An error about a file below ``folder`` counts whatever it is: somebody may have deleted that.
    """
    place = None if error.filename is None else Path(os.fsdecode(error.filename))
    if error.errno not in _SURROUNDINGS and (folder is None or place is None or folder not in place.parents):
        return ""
    return f"{error.strerror}" if place is None else f"{place}: {error.strerror}"


def refuse_taken(path: Path, flag: str = "--output_dir", kind: str = "run") -> None:
    """Look whether a new folder can be made at ``path``, without making it.

    Raises:
        ValueError: the path is a file, a folder that is not empty, or nothing can be written there.
    """
    path = Path(os.path.abspath(path))
    shown = str(path) if len(str(path)) <= 200 else f"{str(path)[:200]}..."
    try:
        try:
            os.stat(path)  # unlike is_dir, it says why it cannot look
            above = path
        except FileNotFoundError:
            above = next(folder for folder in path.parents if folder.exists())
            longest = os.pathconf(above, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
            if max(len(os.fsencode(name)) for name in path.relative_to(above).parts) > longest:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)) from None
        if path.is_file():
            raise ValueError(f"{flag} {shown} is a file; give a new folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise ValueError(f"{flag} {shown} cannot be written: no permission to write in {above}")
        names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    except OSError as error:
        raise ValueError(f"{flag} {shown} cannot be written: {error.strerror}") from error
    if "config.yaml" in names:
        raise ValueError(f"{flag} {shown} already holds a {kind}; go on with it by --resume, or give a new folder")
    if names:
        raise ValueError(f"{flag} {shown} is not empty; give a new folder")


def stamped_folder(parent: str, name: str) -> Path:
    """``parent/<name>_<time>``, with a number behind it where two are made in one second."""
    path = first = Path(parent) / f"{name}_{time.strftime('%Y%m%d-%H%M%S')}"
    count = 1
    while path.exists():
        count += 1
        path = first.with_name(f"{first.name}_{count}")
    return path
