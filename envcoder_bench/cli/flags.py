"""The flags of eval-shapers, and the overrides of cfg/ that they mean."""

import argparse

from envcoder_bench.cli.command_line import (
    Parser,
    add_files,
    add_key,
    add_training,
    add_where,
    flag_words,
)
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.video import VIDEO_VARIABLE

# flags that continue a run, and those that may be given with them
CONTINUES = {
    "--resume": ("--devices", "--ray", "--video"),
    "--extend": (
        "--candidates", "--candidate_idx", "--reward_idx", "--seeds", "--learning_iterations",
        "--devices", "--ray", "--video",
    ),
}  # fmt: skip
DESCRIPTION = "Rank shaping candidates: train a policy for each, in one process, and print the ranking."
EPILOG = """\
examples:
  # rank the files in user_functions/Cartpole against both baselines: minutes on a CPU
  COMMAND --task Cartpole
  # only their rewards; three seeds each
  COMMAND --task Anymal --shaper_types compute_reward --seeds 3
  # two files, with a larger network
  COMMAND --task Anymal --candidates user_functions/Anymal/000_smooth.py user_functions/Anymal/003_torque.py \\
      train.params.network.mlp.units=[512,256,128]
  # ranked by forward speed
  COMMAND --task Anymal --fitness user_functions/fitness/anymal_speed.py
  # check every file, without training
  COMMAND --task Anymal --check
  # describe a task: its state, functions and fitness
  COMMAND --task Ant --describe
  # two GPUs; those of a Ray cluster; four workers on the CPU
  COMMAND --task Anymal --devices 0,1
  COMMAND --task Anymal --ray auto
  COMMAND --task Cartpole --devices cpu:4
  # stop candidates that can no longer win
  COMMAND --task Anymal --race
  # also rank them on terrains
  COMMAND --task SpotTerrain --terrains boulder stairs --terrain_episodes 20
  # which terms of the human reward matter; other weights of two terms
  COMMAND --task Anymal --terms --seeds 3
  COMMAND --task Anymal --candidates user_functions/Anymal/000_smooth.py --sweep tilt=0,1,4 --sweep power=0.5,1,2
  # resume a run
  COMMAND --resume runs/Anymal_20260101-120000
  # extend a complete run
  COMMAND --extend runs/Anymal_20260101-120000 --seeds 3 --learning_iterations 1000

exit codes: 0 ranked; 1 every candidate failed (with --check: one or more); 2 bad input, or a file that cannot be read
or written; 130 stopped by Ctrl-C (128 + its number for another signal), resumable.
"""


def build_parser() -> Parser:
    parser = Parser("eval-shapers", DESCRIPTION, EPILOG)
    what = parser.add_argument_group("candidates")
    what.add_argument(
        "--task",
        help="the task: a name, e.g. Anymal; the folder or module:Class of your own; Isaac Gym code, isaacgymenvs:NAME,"
        " legged_gym:NAME or file.py:Class (docs/isaacgym.md); or mjlab:NAME (docs/mjlab.md)",
    )
    what.add_argument("--describe", action="store_true", help="print the task's state, functions and fitness")
    what.add_argument(
        "--check",
        action="store_true",
        help="load, check and trace the candidates, take one step with them, and train nothing",
    )
    what.add_argument(
        "--shaper_types",
        nargs="+",
        metavar="TYPE",
        help=f"functions to take from the candidates: {', '.join(SHAPER_TYPES)} (default: all)",
    )
    what.add_argument(
        "--candidates", nargs="+", metavar="PATH", help="files or folders (default: user_functions/<Task>)"
    )
    what.add_argument(
        "--candidate_idx",
        "--reward_idx",
        nargs="+",
        metavar="K",
        help="only the candidates at these positions, in sorted order, e.g. 0,2,5 or 0 2 5",
    )
    what.add_argument(
        "--terms",
        action="store_true",
        help="also train each candidate with every reward term left out, halved and doubled, and without each function;"
        " without --candidates, the human baseline: docs/terms.md",
    )
    what.add_argument(
        "--sweep",
        action="append",
        metavar="NAME=V,V",
        help="also train each candidate with these factors of a reward term, or values of a number;"
        " several make a grid",
    )
    what.add_argument("--sweep_points", type=int, metavar="N", help="only N points of the grid")
    add_key(what, "baseline", choices=("human", "unshaped"))
    add_key(what, "untrusted", action="store_true")
    add_key(what, "fitness", metavar="FILE")
    add_key(what, "isolate", choices=("process",))
    what.add_argument("--no_baselines", action="store_true", help="do not evaluate the baselines")

    add_files(what)

    effort = parser.add_argument_group("effort")
    size = effort.add_mutually_exclusive_group()
    add_key(size, "num_envs_per_candidate", type=int, metavar="N")
    size.add_argument("--num_envs", type=int, metavar="TOTAL", help="total number of environments, divided evenly")
    add_training(effort)

    ground = parser.add_argument_group("terrains")
    ground.add_argument(
        "--terrains",
        nargs="+",
        metavar="NAME|FILE",
        help="also rank the candidates by eval-policies on these terrains, after the run: docs/eval_policies.md",
    )
    ground.add_argument("--terrain_episodes", type=int, metavar="N", help="of each candidate on each (default: 100)")
    ground.add_argument("--terrain_seconds", type=float, metavar="S", help="limit of an episode (default: 600)")

    where = parser.add_argument_group("devices and files")
    add_where(where)
    where.add_argument(
        "--video",
        type=int,
        metavar="K",
        help="videos of the best K candidates and of both baselines in report.html (default: 3 where frames can be"
        f" rendered, else 0; the environment variable {VIDEO_VARIABLE} is another default)",
    )
    add_key(where, "wandb", action="store_true")
    add_key(where, "deterministic", action="store_true")
    add_key(where, "profile", action="store_true")
    where.add_argument("--output_dir", metavar="DIR", help="the run's folder (default: runs/<task>_<time>)")
    where.add_argument(
        "--resume", metavar="DIR", help="resume the run in DIR; takes no other flag, but --devices, --ray and --video"
    )
    where.add_argument(
        "--extend",
        metavar="DIR",
        help="add --candidates, --seeds or --learning_iterations (both as totals) to the complete run in DIR; on a CPU"
        " the results are those of one larger run",
    )
    return parser


def config_overrides(args: argparse.Namespace) -> list[str]:
    """Return the flags as overrides of cfg/config.yaml, followed by the user's key=value overrides."""
    return flag_words(args, ("untrusted", "no_baselines", "isolate", "deterministic", "profile"))
