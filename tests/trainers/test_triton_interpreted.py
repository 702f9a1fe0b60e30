"""The tests of Triton's kernels pass without CUDA, in Triton's interpreter.

It executes a kernel with NumPy. It shows wrong arithmetic, masks and strides, but not what a GPU adds: TF32, races,
captured graphs, and what the compiler rejects.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="pip install 'envcoder-bench[dev]' on Linux x86-64: no triton")

ROOT = Path(__file__).parents[2]
FILES = (
    *(
        f"tests/trainers/test_{name}.py"
        for name in ("triton", "adam", "network", "trainer", "critic_observations", "group_numbers")
    ),
    "tests/trainers/test_batch_norm.py",
    "tests/env/test_episode_stats.py",
)
LEAST = 45  # tests; fewer means that they are no longer selected


def release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".")[:2])


@pytest.mark.slow
@pytest.mark.skipif(
    release(triton.__version__) < (3, 7) and release(np.__version__) >= (2, 4),
    reason="before 3.7, Triton's interpreter has no loops with NumPy 2.4",
)
def test_kernels_match_torch_in_the_interpreter() -> None:
    # a process of its own: Triton reads the variable when it is imported
    command = [sys.executable, "-m", "pytest", "-m", "kernels", "--tb=short", "-rs", "-p", "no:cacheprovider", *FILES]
    result = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed and int(passed[1]) >= LEAST and "skipped" not in result.stdout, result.stdout[-2000:]
