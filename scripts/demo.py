"""Rank the shipped candidates of a small task that is learned while you watch; with a GPU, then those of Anymal."""

import argparse
import sys
import time
from pathlib import Path

import torch

from envcoder_bench.cli.eval_shapers import main

# long enough that good shaping balances the pole; bad shaping does not, or ends below the untrained policy
SWINGUP = "--task CartpoleSwingup --num_envs_per_candidate 64 --learning_iterations 100 --seeds 3"
ANYMAL = "--task Anymal"  # two cores would need hours until a candidate walks


def demo() -> int:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for command in (SWINGUP, ANYMAL) if torch.cuda.is_available() else (SWINGUP,):
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
