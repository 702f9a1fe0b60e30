"""Train on the CPU with products whose factors have fewer bits, which acting and learning cut in their own way.

Of float32's 24 bits, TF32 keeps 11 and bfloat16 8. Whether a library rounds or truncates the rest matters if a policy
acts with one and learns with another: docs/benchmarks.md says what happened on a GPU. Prints means of each sixth of a
training of the human baseline.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, Callable

import pandas as pd
import torch
from torch import Tensor

import envcoder_bench
from envcoder_bench.core.errors import exit_on_user_error, user_input
from envcoder_bench.tasks.registry import get_spec
from envcoder_bench.trainers.ppo import network
from envcoder_bench.trainers.ppo.mlp import StackedMLP, Tape

WAYS = ("round", "truncate")
COLUMNS = ["kl", "learning_rate", "entropy", "shaped_return"]


def cut(x: Tensor, bits: int, way: str) -> Tensor:
    """Return float32 numbers with ``bits`` of their 24 significant bits."""
    dropped = 24 - bits
    half = 1 << (dropped - 1) if way == "round" else 0
    return (x.contiguous().view(torch.int32) + half & -(1 << dropped)).view(torch.float32)


def cutting(bits: int, acting: str, learning: str) -> type[StackedMLP]:
    """Return networks that cut the factors of their products; those of the gradients are whole."""

    class CutMLP(StackedMLP):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._affine = None  # its biases would not be cut
            self._whole = self._product

        def _cut(self, way: str, function: Callable[[Any], Any], x: Any) -> Any:
            self._product = lambda a, b, out: self._whole(cut(a, bits, way), cut(b, bits, way), out=out)
            try:
                return function(x)
            finally:
                self._product = self._whole

        def infer(self, x: Tensor) -> Tensor:
            return self._cut(acting, super().infer, x)

        def forward(self, tape: Tape) -> None:
            self._cut(learning, super().forward, tape)

    return CutMLP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acting", choices=WAYS, default="round")
    parser.add_argument("--learning", choices=WAYS, default="truncate")
    parser.add_argument("--bits", type=int, choices=range(2, 24), metavar="N", default=8, help="2 to 23 (default: 8)")
    parser.add_argument("--task", default="Anymal", help="default: %(default)s")
    parser.add_argument("--envs", type=int, default=64, help="environments of each seed (default: %(default)s)")
    parser.add_argument("--iterations", type=int, default=450, help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=3, help="default: %(default)s")
    args = parser.parse_args()
    with user_input():
        folder = get_spec(args.task).folder
    network.StackedMLP = cutting(args.bits, args.acting, args.learning)  # type: ignore[misc]
    human = (folder / "human.py").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary:
        envcoder_bench.evaluate(
            args.task, {"copy_of_human": human}, baselines=False, output_dir=Path(temporary) / "run", device="cpu",
            num_envs_per_candidate=args.envs, learning_iterations=args.iterations, seeds=args.seeds,
        )  # fmt: skip
        curves = pd.read_csv(Path(temporary) / "run" / "curves.csv")
    sixth = (curves["iteration"] - 1) * 6 // args.iterations
    print(f"{args.task}, {args.bits} bits, acting: {args.acting}, learning: {args.learning}")
    means: Any = curves.groupby(sixth.rename("sixth") + 1)[COLUMNS].mean()
    print(means.to_string(float_format="{:.4g}".format))


if __name__ == "__main__":
    with exit_on_user_error("rounding"):
        main()
