"""Records of measurements as JSON lines, with machine, date and command line."""

import hashlib
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from envcoder_bench.core.errors import UserError
from envcoder_bench.run.folder.provenance import device_name

Record = dict[str, Any]


def describe(device: str) -> Record:
    """Return the provenance of a record: ``label`` for plots, ``machine``, ``date`` and ``command``."""
    if device == "cpu":
        label = f"{os.cpu_count()} CPU cores"
        parts = [
            device_name(device).replace("(R)", ""),
            label,
            f"torch {torch.__version__}",
            f"MuJoCo {version('mujoco')}",
        ]
    else:
        label = torch.cuda.get_device_name(device).replace("NVIDIA ", "")
        parts = [label, f"{os.cpu_count()} CPU cores", f"CUDA {torch.version.cuda}", f"torch {torch.__version__}"]
        parts.append(f"MuJoCo Warp {version('mujoco-warp')}")
    return {
        "label": label,
        "machine": ", ".join(parts),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "command": command_line(),
        "device": torch.device(device).type,
    }


def command_line() -> str:
    """Return the command line without ``--out``."""
    words = sys.argv[1:]
    kept = [word for i, word in enumerate(words) if word != "--out" and words[i - 1 : i] != ["--out"]]
    program = Path(sys.argv[0]).resolve()
    return f"python {program.parent.name}/{program.name} {' '.join(kept)}"


def identify(record: Record) -> Record:
    """Return a record with its ``id``: the kind, and a digest of everything else, so that an edit shows."""
    content = json.dumps({key: value for key, value in record.items() if key != "id"}, sort_keys=True)
    return {"id": f"{record['kind']}-{hashlib.sha256(content.encode()).hexdigest()[:8]}", **record}


def append(path: Path | None, record: Record) -> None:
    """Add a record, with its ``id``, to a file, if there is one."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(identify(record)) + "\n")


def read(path: Path) -> list[Record]:
    """Return all records of a file in order; empty if the file does not exist.

    Raises:
        UserError: a line is not a JSON object.
    """
    if not path.is_file():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                records.append(dict(json.loads(line)))
            except (ValueError, TypeError) as error:
                raise UserError(f"{path}:{number}: this is not a record, a JSON object; remove the line") from error
    return records


def place(record: Record) -> str:
    """Return the card, or the processor's cores, and the simulator's version, such as ``H100, MuJoCo Warp 4.0.0``."""
    label = record["label"] if record["device"] == "cpu" else record["label"].split()[0]
    return f"{label}, {record['machine'].split(', ')[-1]}"


def latest(records: list[Record], kind: str, *keys: str) -> list[Record]:
    """Return the last record of a kind for each machine and combination of ``keys``, sorted by them."""
    newest: dict[Any, Record] = {}
    for record in records:
        if record["kind"] == kind:
            newest[(record["label"], *(record[key] for key in keys))] = record
    return [newest[key] for key in sorted(newest)]
