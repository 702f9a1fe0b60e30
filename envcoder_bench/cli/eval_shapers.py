"""Rank shaping candidates: train a policy for each, in one process, and print the ranking."""

import argparse
import gc
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from envcoder_bench.cli.after_run import conclude, conclude_with_terrains, terrain_words
from envcoder_bench.cli.command_line import command, given_flags, listed
from envcoder_bench.cli.flags import CONTINUES, build_parser, config_overrides
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import refuse_taken
from envcoder_bench.tasks.isaacgym_tasks import with_task_config
from envcoder_bench.tasks.registry import check_task_name
from envcoder_bench.video import VIDEO_VARIABLE


def _describe(task: str, overrides: Sequence[str]) -> int:
    from envcoder_bench.tools.describe import describe

    with user_input():
        print(describe(task, shutil.get_terminal_size((110, 24)).columns, overrides))
    return 0


def _check(args: argparse.Namespace) -> int:
    from envcoder_bench.report.check import render_check
    from envcoder_bench.tools.check import check_candidates

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
    trains_variants = next((flag for flag in ("--terms", "--sweep") if flag in given_flags(words)), "")
    if trains_variants and (args.check or args.describe):
        raise UserError(f"{trains_variants} trains, and {'--check' if args.check else '--describe'} does not")
    if args.resume or args.extend:
        pass
    elif not args.task:
        raise UserError("no task: give --task NAME, e.g. --task Cartpole; see --help")
    else:
        args.task, args.task_config = with_task_config(args.task, args.task_config)
        with user_input():
            check_task_name(args.task)
    if args.describe:
        return _describe(args.task, config_overrides(args))
    if args.check:
        return _check(args)
    from envcoder_bench.cli.console import Console, resumable
    from envcoder_bench.run import evaluate  # torch and the simulators load here, so that --help is instant

    on_terrains = None
    if args.terrains:
        on_terrains = terrain_words(args.task, args.terrains, args.terrain_episodes, args.terrain_seconds, args.device)
    if args.video is not None:
        os.environ[VIDEO_VARIABLE] = str(args.video)  # also for the processes of an isolated run
    gc.freeze()  # imported objects are permanent: exclude them from garbage collection
    console = Console(names_folder=not (args.resume or args.extend), one_process_a_wave=True)
    with resumable():
        if args.resume:
            where = {"devices": args.devices, "ray": args.ray}
            result = evaluate.resume(Path(args.resume), reporter=console, stop=console.stop, **where)
            return conclude(result, args.video, console)
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
            return conclude(result, args.video, console)
        result = evaluate.evaluate(
            args.task,
            args.candidates,
            overrides=config_overrides(args),
            candidate_idx=_positions(args.candidate_idx),
            num_envs=args.num_envs,
            terms=args.terms,
            sweep=args.sweep,
            sweep_points=args.sweep_points,
            output_dir=args.output_dir,
            reporter=console,
            stop=console.stop,
        )
        if on_terrains is not None:
            return conclude_with_terrains(on_terrains, result, args.video, console)
        return conclude(result, args.video, console)
