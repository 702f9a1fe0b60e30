"""Rank shaping candidates: train a policy for each, in one process, and print the ranking."""

import argparse
import gc
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envcoder_bench.cli.command_line import (
    Parser,
    add_files,
    add_key,
    add_training,
    add_where,
    command,
    count,
    flag_words,
    flags_in,
    refuse_others,
    settle_task,
    split_items,
)
from envcoder_bench.cli.json_output import show
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import refuse_taken
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
  # also play their policies under disturbances
  COMMAND --task Anymal --stress --rank_by stress
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
    parser = Parser("eval-shapers", __doc__ or "", EPILOG)
    parser.add_overrides()
    _add_candidates(parser.add_argument_group("candidates"))
    _add_effort(parser.add_argument_group("effort"))
    _add_stress(parser.add_argument_group("stress"))
    _add_devices_and_files(parser.add_argument_group("devices and files"))
    return parser


def _add_candidates(what: Any) -> None:
    what.add_argument(
        "--task",
        help="the task: a name, e.g. Anymal; the folder or module:Class of your own; Isaac Gym code, isaacgymenvs:NAME,"
        " legged_gym:NAME or file.py:Class (docs/isaacgym.md); mjlab:NAME (docs/mjlab.md); or isaaclab:PACKAGE:NAME"
        " (docs/isaaclab.md)",
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
        help="also train each candidate with these factors of a reward term, or values of a number, of the trainer's as"
        " train.params.config.gamma=0.9,0.99; several make a grid",
    )
    what.add_argument("--sweep_points", type=int, metavar="N", help="only N points of the grid")
    add_key(what, "baseline", choices=("human", "unshaped"))
    add_key(what, "untrusted", action="store_true")
    add_key(what, "fitness", metavar="FILE")
    add_key(what, "isolate", choices=("process",))
    what.add_argument("--no_baselines", action="store_true", help="do not evaluate the baselines")

    add_files(what)


def _add_effort(effort: Any) -> None:
    size = effort.add_mutually_exclusive_group()
    add_key(size, "num_envs_per_candidate", type=int, metavar="N")
    size.add_argument("--num_envs", type=int, metavar="TOTAL", help="total number of environments, divided evenly")
    add_training(effort)
    effort.add_argument(
        "--half_step",
        action="store_true",
        help="measure final policies with half the physics step, too: a policy that exploits the simulation loses"
        " fitness (docs/reading_a_run.md#hacked)",
    )


def _add_stress(under: Any) -> None:
    under.add_argument(
        "--stress",
        action="store_true",
        help="also play the final policies under disturbances, after the run: docs/stress.md",
    )
    under.add_argument("--stress_draws", type=count, metavar="N", help="only the first N draws (default: 64)")
    under.add_argument("--stress_episodes", type=count, metavar="N", help="of each draw (default: 16)")
    under.add_argument("--rank_by", choices=("fitness", "stress"), help="order of the table (default: fitness)")


def _add_devices_and_files(where: Any) -> None:
    add_where(where)
    where.add_argument(
        "--video",
        type=count,
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
        help="add --candidates, --seeds or --learning_iterations (both as totals, of all candidates) to the complete"
        " run in DIR; on a CPU the results are those of one larger run",
    )


# the command


def _describe(task: str, overrides: Sequence[str]) -> int:
    from envcoder_bench.serve.documents import Task
    from envcoder_bench.tools.describe import render_task, task_facts

    with user_input():
        facts = task_facts(task, overrides)
    show(lambda: Task(facts=facts), lambda: render_task(facts, shutil.get_terminal_size((110, 24)).columns) + "\n")
    return 0


def _check(args: argparse.Namespace) -> int:
    from envcoder_bench.serve.documents import check
    from envcoder_bench.tools.check import check_candidates, render_check

    result = check_candidates(args.task, flag_words(args), args.candidates, args.candidate_idx, args.num_envs)
    width = max(80, min(160, shutil.get_terminal_size((110, 24)).columns))
    show(lambda: check(result), lambda: render_check(result, width))
    return 0 if result.passed else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    return command("eval-shapers", _main, sys.argv[1:] if argv is None else argv)


def _parsed(words: list[str]) -> argparse.Namespace:
    """Parse the command line, and check what can be checked before the imports, which take seconds."""
    args, flags = build_parser().parse(words), flags_in(words)
    if args.output_dir is not None:
        with user_input():
            refuse_taken(Path(args.output_dir))
    # flags that exclude each other
    for flag, others in CONTINUES.items():
        if flag in flags:
            refuse_others(args, words, flag, others, "the run's")
    for flag in ("--stress_draws", "--stress_episodes", "--rank_by"):
        if flag in flags and not args.stress:
            raise UserError(f"{flag} is for --stress, which is not given")
    trains_variants = next((flag for flag in ("--terms", "--sweep") if flag in flags), "")
    if args.check and args.describe:
        raise UserError("--check and --describe: give one of them")
    if trains_variants and (args.check or args.describe):
        raise UserError(f"{trains_variants} trains, and {'--check' if args.check else '--describe'} does not")
    if args.candidate_idx is not None:
        args.candidate_idx = ",".join(split_items(args.candidate_idx))
    # a new run
    if not (args.resume or args.extend):
        settle_task(args)
    return args


def _main(words: list[str]) -> int:
    args = _parsed(words)
    if args.describe:
        return _describe(args.task, flag_words(args))
    if args.check:
        return _check(args)
    from envcoder_bench.cli.console import (
        Console,
        conclude,
        resumable,
    )
    from envcoder_bench.run import evaluate  # torch and the simulators load here, so that --help is instant
    from envcoder_bench.run.prepare.variants import Asked

    if args.video is not None:
        os.environ[VIDEO_VARIABLE] = str(args.video)  # also for the processes of an isolated run
    gc.freeze()  # imported objects are permanent: exclude them from garbage collection
    console = Console(names_folder=not (args.resume or args.extend), one_process_a_wave=True)
    with resumable():
        where = {"devices": args.devices, "ray": args.ray}  # a run may go on elsewhere than it began
        if args.resume:
            result = evaluate.resume(Path(args.resume), reporter=console, stop=console.stop, **where)
            return conclude(result, args.video)
        if args.extend:
            from envcoder_bench.run.extend import extend

            more = {name: getattr(args, name) for name in ("candidate_idx", "seeds", "learning_iterations")}
            result = extend(args.extend, args.candidates, reporter=console, stop=console.stop, **more, **where)
            return conclude(result, args.video)
        result = evaluate.evaluate(
            args.task,
            args.candidates,
            overrides=flag_words(args),
            candidate_idx=args.candidate_idx,
            num_envs=args.num_envs,
            variants=Asked.of(args.terms, args.sweep, args.sweep_points),
            output_dir=args.output_dir,
            reporter=console,
            stop=console.stop,
        )
        code = conclude(result, args.video, args.stress)
        return _under_stress(result.folder, args) if result.complete and not code and args.stress else code


def _under_stress(folder: Path, args: Any) -> int:
    """Run ``envcoder-bench stress`` with the policies of a run."""
    from envcoder_bench.cli.run_verbs import stress

    flags = {"draws": args.stress_draws, "episodes": args.stress_episodes, "rank_by": args.rank_by}
    flags["device"] = args.device
    words = [word for name, value in flags.items() if value is not None for word in (f"--{name}", str(value))]
    return stress([str(folder), *words])
