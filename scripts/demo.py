"""Rank the shipped candidates: Cartpole until they separate, then Anymal, short on a CPU and in full on a GPU."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from envcoder_bench.eval_shapers import main

CARTPOLE = "--task Cartpole --num_envs_per_candidate 64 --learning_iterations 25 --seeds 3"
# two cores train about 10,000 env-steps/s: enough to show every part of a run, but not to learn to walk
ANYMAL_CPU = (
    "--task Anymal --num_envs_per_candidate 56 --learning_iterations 100"
    " evaluation.num_envs=16 evaluation.final_episodes=16 evaluation.points=2"
)
ANYMAL_CUDA = "--task Anymal"


def demo() -> int:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    anymal = ANYMAL_CUDA if torch.cuda.is_available() else ANYMAL_CPU
    for command in (CARTPOLE, anymal):
        words = command.split()
        words += ["--output_dir", str(Path("runs") / f"demo_{words[1]}_{stamp}")]
        print(f"\n$ eval-shapers {' '.join(words)}\n", flush=True)
        code = main(words)
        if code:
            return code
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.exit(demo())
