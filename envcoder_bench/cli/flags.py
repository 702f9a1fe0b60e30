"""The flags of eval-shapers, and the overrides of cfg/ that they mean."""

import argparse

from envcoder_bench.cli.command_line import (
    Parser,
    add_baseline,
    add_files,
    add_fitness,
    add_key,
    add_num_envs,
    add_training,
    add_wandb,
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
  # rank the files in user_functions/Cartpole against both baselines, in full: for a GPU; minutes on a CPU
  COMMAND --task Cartpole
  # only their rewards, everything else from the human baseline; three seeds each
  COMMAND --task Anymal --shaper_types compute_reward --seeds 3
  # two files, with a larger network
  COMMAND --task Anymal --candidates user_functions/Anymal/000_smooth.py user_functions/Anymal/003_torque.py \\
      train.params.network.mlp.units=[512,256,128]
  # a small run, to test a file
  COMMAND --task Cartpole --candidate_idx 1 --num_envs_per_candidate 64 --learning_iterations 25
  # ranked by forward speed instead of velocity tracking
  COMMAND --task Anymal --fitness user_functions/fitness/anymal_speed.py
  # check that every file loads and compiles, and show its rewards, without training
  COMMAND --task Anymal --check
  # describe a task: the keys of state_dict, the functions that candidates may define, and the fitness
  COMMAND --task Ant --describe
  # two GPUs of this machine at a time; the GPUs of a running Ray cluster; four workers on the CPU
  COMMAND --task Anymal --devices 0,1
  COMMAND --task Anymal --ray auto
  COMMAND --task Cartpole --devices cpu:4
  # stop candidates that can no longer win before the end of the training
  COMMAND --task Anymal --race
  # also rank the candidates on terrains
  COMMAND --task SpotTerrain --terrains boulder stairs --terrain_episodes 20
  # resume a run that was stopped or killed
  COMMAND --resume runs/Anymal_20260101-120000
  # add a candidate, seeds or iterations to a complete run
  COMMAND --extend runs/Anymal_20260101-120000 --candidates user_functions/Anymal/003_torque.py
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
    what.add_argument(
        "--describe", action="store_true", help="print the task's state, functions and fitness, and do nothing else"
    )
    what.add_argument(
        "--check",
        action="store_true",
        help="load, check and trace the candidates, take one step with them, print what was found, and train nothing",
    )
    what.add_argument(
        "--shaper_types",
        nargs="+",
        metavar="TYPE",
        help=f"functions to take from the candidates: {', '.join(SHAPER_TYPES)} (default: all that they define)",
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
    add_baseline(what)
    add_key(what, "untrusted", action="store_true")
    add_fitness(what)
    add_key(what, "isolate", choices=("process",))
    what.add_argument("--no_baselines", action="store_true", help="do not evaluate the baselines")

    add_files(what)

    effort = parser.add_argument_group("effort")
    size = effort.add_mutually_exclusive_group()
    add_num_envs(size)
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
    add_wandb(where)
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
