"""Search for shaping without a language model: evolution repairs a Cartpole whose actions are badly scaled.

An action of 1 pushes the cart with 4 N instead of 400 N. Both baselines fail to balance the pole in the available time;
the search may write rewards and actions. It always runs on the CPU, because a GPU would not be faster for so small a
task. Further flags of auto-shape may be given.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.cli.auto_shape import main

SEARCH = (
    "--task Cartpole --llm evolve --shaper_types compute_reward compute_torque --num_iters 5 --shapers_per_iter 8"
    " --num_envs_per_candidate 64 --learning_iterations 24 --seeds 2 --sim mujoco_cpu --device cpu"
    " task.env.maxEffort=4 evaluation.points=1 evaluation.num_envs=16 evaluation.final_episodes=16"
    " --final_seeds 4 final_episodes=32"
)


def demo(more: Sequence[str] = ()) -> int:
    folder = Path("searches") / f"demo_auto_{time.strftime('%Y%m%d-%H%M%S')}"
    words = [*SEARCH.split(), *more, "--output_dir", str(folder)]
    print(f"\n$ auto-shape {' '.join(words)}\n", flush=True)
    began = time.monotonic()
    code = main(words)
    if code == 0:
        print(f"\n{time.monotonic() - began:.0f} s. Open {folder / 'report.html'} for all candidates and the winner")
    return code


if __name__ == "__main__":
    sys.exit(demo(sys.argv[1:]))
