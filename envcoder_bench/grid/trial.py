"""Policies are read and called in a process with limits first: a small file can take all memory, or an hour.

Its limits do not see what takes more for other observations than those of the trial.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from envcoder_bench.core.errors import UserError, causes
from envcoder_bench.grid.policies import input_width
from envcoder_bench.grid.policy_files import memory_of, read_policy
from envcoder_bench.jail.confine import address_space

MEMORY = 4 << 30  # bytes for a file, in addition to those of the process
SECONDS = 30  # processor time for a file
ROWS = 64


def refusals(files: Mapping[str, str], widths: Sequence[int]) -> dict[str, str]:
    """Return why policies cannot be used, by name: a file is damaged or refused, or it or a call takes too much.

    Whether a policy takes a width is not asked. Only Linux has these limits; elsewhere nothing is refused.

    Args:
        files: by the policies' names.
        widths: of the observations that they may take; empty if each policy has its own.
    """
    if not sys.platform.startswith("linux"):
        return {}
    waiting, reasons = dict(files), {}
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    while waiting:
        child = subprocess.run(
            [sys.executable, "-m", "envcoder_bench.grid.trial"],
            input=json.dumps({"files": waiting, "widths": list(widths), "memory": MEMORY, "seconds": SECONDS}),
            capture_output=True,
            text=True,
            env=environment,
        )
        for line in child.stdout.splitlines():
            name, reason = json.loads(line)
            file = waiting.pop(name)
            if reason is None:
                reason = f"policy {name}: {file} is refused: {_too_much(f'{MEMORY >> 30} GiB of memory')}"
            if reason:
                reasons[name] = reason
        if waiting:
            name = next(iter(waiting))
            reasons[name] = f"policy {name}: {waiting.pop(name)} is refused: {_end(child)}"
    return reasons


def _end(child: subprocess.CompletedProcess[str]) -> str:
    """Return why the process ended early."""
    if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return _too_much(f"{SECONDS} s of processor time")
    last = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return f"the process that reads and calls it ends early ({last})"


def _too_much(limit: str) -> str:
    return f"to read it, or to call it with {ROWS} rows, takes more than {limit}"


def _try(name: str, file: Path, widths: Sequence[int]) -> str | None:
    """Read and call a policy; return why it cannot be used, or an empty text; None if memory is the reason."""
    try:
        module = read_policy(name, file)[1].eval()
    except (UserError, MemoryError) as error:
        return None if _is_of_memory(error) else str(error)
    for width in widths or filter(None, [input_width(module, {})]):
        try:
            with torch.no_grad():
                module(torch.full((ROWS, width + memory_of(module)), 0.5))
        except Exception as error:  # most widths are those of other policies
            if _is_of_memory(error):
                return None
    return ""


def _is_of_memory(error: BaseException) -> bool:
    return any(isinstance(cause, MemoryError) or "allocate memory" in str(cause) for cause in causes(error))


def main() -> int:
    """Try the policies that standard input names; print name and reason of each."""
    import resource  # not on Windows

    asked = json.load(sys.stdin)
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, word in asked["files"].items():
        file = Path(word)
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + 1 + asked["seconds"]
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + asked["memory"], resource.RLIM_INFINITY))
        file = file / "policy.pth" if file.is_dir() else file
        print(json.dumps([name, _try(name, file, asked["widths"]) if file.is_file() else ""]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
