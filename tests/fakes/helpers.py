"""Running the command in a test: small, on the CPU, in this process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable

import pandas as pd
import torch

from envcoder_bench import eval_shapers
from envcoder_bench.eval_shapers import main

# a run of seconds: short episodes, few of them
QUICK = [
    "--sim", "mujoco_cpu", "--device", "cpu",
    "evaluation.num_envs=3", "evaluation.final_episodes=6", "evaluation.points=2",
]  # fmt: skip
PATIENCE = 900  # seconds until a test gives a process up: it hangs, however busy the machine is
ANYMAL_QUICK = [*QUICK, "task.env.learn.episodeLength_s=0.4"]
CARTPOLE_QUICK = [*QUICK, "--task", "Cartpole", "task.env.episodeLength=60"]


def run(output: Path, *words: Any, expect: int = 0) -> Path:
    """Run eval-shapers and expect an exit code."""
    code = main([*map(str, words), "--output_dir", str(output)])
    assert code == expect, f"exit code {code}"
    return output


def start_process(words: list[Any], output: Path) -> subprocess.Popen:
    """Run eval-shapers in a process of its own, which can be stopped."""
    command = [sys.executable, eval_shapers.__file__, *map(str, words), "--output_dir", str(output)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stop_at(process: subprocess.Popen, reached: Callable[[], bool], number: int) -> tuple[int, str]:
    """Send a signal once ``reached()``, and wait for the end: exit code, and what was said on stderr."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if reached():
            process.send_signal(number)
            break
        time.sleep(0.002)
    try:
        told = process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        process.kill()  # else it goes on when the tests have ended
        raise
    return process.returncode, told


def write_candidates(folder: Path, sources: dict[str, str]) -> list[Path]:
    """Write candidate files and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.py" for name in sources]
    for path, source in zip(paths, sources.values()):
        path.write_text(source, encoding="utf-8")
    return paths


def results(run_folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(run_folder / "results.csv", dtype={"candidate": str, "error": str}).set_index("candidate")
    return rows.fillna({"error": ""})


def weights(run_folder: Path, candidate: str) -> dict[str, torch.Tensor]:
    path = run_folder / "candidates" / candidate / "policy.pth"
    return torch.load(path, weights_only=False)["model"]


def assert_same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    """Bitwise."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name
