"""Files that are either the old ones or the new ones, never half of one."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Replace a file's content in one step; a writer killed midway leaves the old file as it was.

    Text is written as UTF-8 with its line ends as they are. The temporary file has a fixed name beside the target, so
    that a killed writer's remains are overwritten by the next one; a run has its folder for itself.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if temporary.exists():
            temporary.unlink()
        raise
