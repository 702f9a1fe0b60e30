"""Rank shaping candidates: train a policy for each, in one process, and print the ranking."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Sequence

if __package__ in (None, ""):  # run as a file: python envcoder_bench/eval_shapers.py
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from envcoder_bench.command_line import (
    Parser,
    add_files,
    add_fitness,
    add_num_envs,
    add_training,
    add_wandb,
    add_where,
    as_words,
    command,
    common_overrides,
    given_flags,
    listed,
    take_config,
)
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import refuse_taken
from envcoder_bench.core.shell import shown
from envcoder_bench.shaping.kinds import SHAPER_TYPES
from envcoder_bench.tasks.registry import check_task_name
from envcoder_bench.video import VIDEO_VARIABLE, default_videos

if TYPE_CHECKING:  # it imports torch, which --help does not need
    from envcoder_bench.run.run_result import RunResult

# flags that continue a run, and those that may be given with them
CONTINUES = {
    "--resume": ("--devices", "--ray", "--video"),
    "--extend": (
        "--candidates", "--candidate_idx", "--reward_idx", "--seeds", "--learning_iterations",
        "--devices", "--ray", "--video",
    ),
}  # fmt: skip
log = logging.getLogger(__name__)

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
    parser = Parser("eval-shapers", __doc__ or "", EPILOG)
    what = parser.add_argument_group("candidates")
    what.add_argument(
        "--task",
        help="the robot task: a name, e.g. Anymal; the folder or module:Class of your own; or a task of Isaac Gym code,"
        " isaacgymenvs:NAME, legged_gym:NAME or file.py:Class (docs/isaacgym.md)",
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
    what.add_argument(
        "--baseline", choices=("human", "unshaped"), help="baseline that fills in missing functions (default: human)"
    )
    what.add_argument(
        "--untrusted",
        action="store_true",
        help="for untrusted candidates: check and trace them in a confined process, and run only the traced programs",
    )
    add_fitness(what)
    what.add_argument(
        "--isolate",
        choices=("process",),
        help="train each candidate in a separate process, one after the other: for tasks of Isaac Gym code that mix"
        " environments (docs/isaacgym.md)",
    )
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
    where.add_argument(
        "--deterministic",
        action="store_true",
        help="on CUDA: the same command gives the same bits, and a candidate's do not depend on the others; slower"
        " (docs/deterministic.md). On a CPU this always holds",
    )
    where.add_argument(
        "--profile",
        action="store_true",
        help="profile the run: some early iterations are measured, two are traced; the results are the same",
    )
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
    own = {
        "baseline": args.baseline,
        "untrusted": "true" if args.untrusted else None,
        "baselines": "false" if args.no_baselines else None,
        "isolate": args.isolate,
        "deterministic": "true" if args.deterministic else None,
        "profile": "true" if args.profile else None,
    }
    return [*as_words({**common_overrides(args), **own}), *args.overrides]


def _describe(task: str, overrides: Sequence[str]) -> int:
    from envcoder_bench.run.describe import describe

    with user_input():
        print(describe(task, shutil.get_terminal_size((110, 24)).columns, overrides))
    return 0


def _check(args: argparse.Namespace) -> int:
    from envcoder_bench.report.check import render_check
    from envcoder_bench.run.check import check_candidates

    result = check_candidates(
        args.task, config_overrides(args), _paths(args.candidates), _positions(args.candidate_idx), args.num_envs
    )
    width = max(80, min(160, shutil.get_terminal_size((110, 24)).columns))
    print(render_check(result.rows, width, result.compiles, result.num_envs), end="")
    return 0 if result.passed else 1


def _paths(words: list[str] | None) -> list[Path] | None:
    return None if words is None else [Path(word) for word in words]


def _positions(words: list[str] | None) -> str | None:
    return None if words is None else ",".join(listed(words))


def _report(result: RunResult, code: int, videos: int | None) -> int:
    """Write the page of a complete run and print its path; return ``code``, whatever happens."""
    from envcoder_bench.report.page import PAGE

    if not result.complete or (not result.trained and videos is None and (result.folder / PAGE).is_file()):
        return code
    from envcoder_bench.run.tracking import log_report
    from envcoder_bench.video.page import page_videos, write_page

    try:
        page = write_page(result.folder, default_videos())
        print(shown(page))
        log_report(result.folder, page, page_videos(result.folder))
    except KeyboardInterrupt:
        print(f"stopped; the run is complete, without {PAGE}", file=sys.stderr)
    except Exception as error:  # results must not depend on it
        log.warning("%s could not be written: %s", PAGE, error)
    return code


def _terrain_words(args: argparse.Namespace) -> list[str]:
    """Check ``--terrains`` before the run; return the words of eval-policies without the policies and the folder."""
    from envcoder_bench.grid.robots import ROBOTS
    from envcoder_bench.grid.settings import compose_settings
    from envcoder_bench.grid.terrains import find_arenas

    robot = next((own.name for own in ROBOTS.values() if args.task in own.tasks), None)
    if robot is None:
        tasks = ", ".join(task for own in ROBOTS.values() for task in own.tasks)
        raise UserError(f"--terrains is for the tasks {tasks}, not {args.task}")
    flags = {"episodes": args.terrain_episodes, "seconds": args.terrain_seconds}
    find_arenas(args.terrains, compose_settings(as_words(flags)))
    words = ["--robot", robot, "--terrains", *args.terrains]
    words += [] if args.device is None else ["--device", args.device]
    return words + [word for name, value in flags.items() if value is not None for word in (f"--{name}", str(value))]


def _finish_with_terrains(words: list[str], result: RunResult, videos: int | None) -> int:
    """Finish a run; if it is complete, run eval-policies with its candidates in its folder ``terrains``.

    If it is not, the command for later is printed, because a resumed run does not evaluate on terrains.
    """
    from envcoder_bench import eval_policies
    from envcoder_bench.console import finish

    words = ["--policies", str(result.folder), *words, "--output_dir", str(result.folder / "terrains")]
    if not result.complete:
        print(f"terrains, when the run is complete: eval-policies {shlex.join(words)}", file=sys.stderr)
    code = _report(result, finish(result), videos)
    return code if code or not result.complete else eval_policies.run(words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    return command("eval-shapers", _main, sys.argv[1:] if argv is None else argv)


def _main(words: list[str]) -> int:
    args = build_parser().parse(words)
    if args.video is not None and args.video < 0:
        raise UserError(f"--video {args.video}: it must be 0 or more")
    if args.output_dir is not None:
        with user_input():
            refuse_taken(Path(args.output_dir))  # before the imports, which take seconds
    for flag, others in CONTINUES.items():
        if flag in given_flags(words) and (set(given_flags(words)) - {flag, *others} or args.overrides):
            raise UserError(
                f"{flag} takes no other flag but {', '.join(others[:-1])} and {others[-1]}: the settings are those of"
                " the run's config.yaml"
            )
    for flag in ("--terrain_episodes", "--terrain_seconds"):
        if flag in given_flags(words) and not args.terrains:
            raise UserError(f"{flag} is for --terrains, which is not given")
    if args.resume or args.extend:
        pass
    elif not args.task:
        raise UserError("no task: give --task NAME, e.g. --task Cartpole; see --help")
    else:
        take_config(args)
        with user_input():
            check_task_name(args.task)
    if args.describe:
        return _describe(args.task, config_overrides(args))
    if args.check:
        return _check(args)
    from envcoder_bench.console import Console, finish, resumable
    from envcoder_bench.run import evaluate  # torch and the simulators load here, so that --help is instant

    terrain_words = _terrain_words(args) if args.terrains else None
    if args.video is not None:
        os.environ[VIDEO_VARIABLE] = str(args.video)  # also for the processes of an isolated run
    gc.freeze()  # imported objects are permanent: exclude them from garbage collection
    console = Console(names_folder=not (args.resume or args.extend), one_process_a_wave=True)
    with resumable():
        if args.resume:
            where = {"devices": args.devices, "ray": args.ray}
            result = evaluate.resume(Path(args.resume), reporter=console, stop=console.stop, **where)
            return _report(result, finish(result), args.video)
        if args.extend:
            from envcoder_bench.run.extend import extend

            result = extend(
                args.extend,
                _paths(args.candidates),
                candidate_idx=_positions(args.candidate_idx),
                seeds=args.seeds,
                learning_iterations=args.learning_iterations,
                devices=args.devices,
                ray=args.ray,
                reporter=console,
                stop=console.stop,
            )
            return _report(result, finish(result), args.video)
        result = evaluate.evaluate(
            args.task,
            args.candidates,
            overrides=config_overrides(args),
            candidate_idx=_positions(args.candidate_idx),
            num_envs=args.num_envs,
            output_dir=args.output_dir,
            reporter=console,
            stop=console.stop,
        )
        if terrain_words is not None:
            return _finish_with_terrains(terrain_words, result, args.video)
        return _report(result, finish(result), args.video)


if __name__ == "__main__":
    sys.exit(main())
