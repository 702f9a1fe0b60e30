"""Atomic file writes, digests, and error messages for files that cannot be read or written."""

import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from envcoder_bench.core.errors import UserError
from envcoder_bench.core.folders import folder_kind

LOCK = ".lock"  # file of a folder that one process at a time may write to
# errors of a disk or a folder, which are not bugs of this program
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
    """Add this file's name to an OSError raised inside the block; writes and flushes raise it without a name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Replace a file's content atomically; if the process is killed midway, the old file is unchanged.

    Text is written as UTF-8, with line ends unchanged. The temporary file has a fixed name beside the target, so that
    the next write replaces what a killed process left. No two processes may write to one folder.
    """
    path = Path(path)
    with naming(path):
        _replace(path, path.with_name(f".{path.name}.tmp"), content, lasting=True)


def write_shared(path: Path, content: str | bytes) -> None:
    """Replace a file of the cache, which several processes and threads may write; as ``write_atomic``.

    After a failure of the machine it may be damaged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming(path):
        _replace(path, path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp"), content)


def _replace(path: Path, temporary: Path, content: str | bytes, lasting: bool = False) -> None:
    try:
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # a killed process may have left it; a link would be refused
        with open(temporary, "xb", opener=no_links) as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = str(path)  # users do not know the temporary file
        raise


def no_links(path: str | Path, flags: int) -> int:
    """Open a file unless it is a link, which a folder of somebody else may contain. This is an ``opener`` of ``open``.

    Raises OSError for a link.
    """
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file with named values. Raises OSError, or ValueError for other content."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path}: it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: it has no named values")
    return content


def digest(content: str | bytes) -> str:
    """Return the SHA-256 of a content. A text may have bytes that are not UTF-8, as the names of files."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogateescape")
    return hashlib.sha256(content).hexdigest()


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(folder: Path, kind: str, wait: float = 0.0) -> Iterator[None]:
    """Lock a folder against other processes; the operating system releases the lock of a killed process.

    Args:
        kind: the kind of folder, such as ``run``, for the message.
        wait: seconds to wait for another process.

    Raises:
        UserError: another process holds the lock.
    """
    from filelock import FileLock, Timeout  # torch's dependency; confined processes have no packages

    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        raise UserError(
            f"{folder}: another process is executing this {kind}: wait until it ends, or stop it first"
        ) from None
    except PermissionError as error:
        error.filename = str(folder)  # users do not know the lock's file
        raise
    try:
        yield
    finally:
        lock.release()


def disk_trouble(error: OSError, folder: Path | None = None) -> str:
    """Return a line that says which file cannot be used and why; empty if the cause is neither the disk nor ``folder``.

    Any error about a file in ``folder`` counts, because somebody may have deleted the folder.
    """
    path = None if error.filename is None else Path(os.fsdecode(error.filename))
    if error.errno not in _SURROUNDINGS and (folder is None or path is None or folder not in path.parents):
        return ""
    return f"{error.strerror}" if path is None else f"{path}: {error.strerror}"


def refuse_taken(path: Path, kind: str = "run") -> None:
    """Check that a new folder can be created at ``path``, without creating it.

    Raises:
        ValueError: the path is a file, a folder that is not empty, or not writable.
    """
    path = Path(os.path.abspath(path))
    start = f"--output_dir {path if len(str(path)) <= 200 else f'{str(path)[:200]}...'}"
    try:
        try:
            os.stat(path)  # unlike is_dir, it raises an error that gives the reason
            above = path
        except FileNotFoundError:
            above = next(folder for folder in path.parents if folder.exists())
            longest = os.pathconf(above, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
            if max(len(os.fsencode(name)) for name in path.relative_to(above).parts) > longest:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)) from None
        if path.is_file():
            raise ValueError(f"{start} is a file; give a new folder")
        if not os.access(above, os.W_OK | os.X_OK):
            raise ValueError(f"{start} cannot be written: no permission to write in {above}")
        names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    except OSError as error:
        raise ValueError(f"{start} cannot be written: {error.strerror}") from error
    if "config.yaml" in names:
        present = folder_kind(path)
        resume = "use --resume, or " if present in (None, kind) else ""
        raise ValueError(f"{start} already holds a {present or kind}; {resume}give a new folder")
    if names:
        raise ValueError(f"{start} is not empty; give a new folder")


def stamped_folder(parent: str, name: str) -> Path:
    """Return the new path ``parent/<name>_<time>``, with a number at its end if that exists."""
    path = first = Path(parent) / f"{name}_{time.strftime('%Y%m%d-%H%M%S')}"
    count = 1
    while path.exists():
        count += 1
        path = first.with_name(f"{first.name}_{count}")
    return path
