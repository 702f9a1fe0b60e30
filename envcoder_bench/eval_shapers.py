"""Rank shaping candidates: train a policy for each, in one process, and print which shaping trains the best."""

from __future__ import annotations

import argparse
import gc
import re
import shutil
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence

if __package__ in (None, ""):  # run as a file: python envcoder_bench/eval_shapers.py
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from envcoder_bench.errors import UserError, near_matches, user_input
from envcoder_bench.shaping.contract import ALIASES, SHAPER_TYPES

EPILOG = """\
examples:
  # rank the files in user_functions/Cartpole against both baselines
  python eval_shapers.py --task Cartpole
  # only their rewards; observations and all else from the human baseline; three seeds each
  python eval_shapers.py --task Anymal --shaper_types compute_reward --seeds 3
  # two files of your own, with a larger network
  python eval_shapers.py --task Anymal --candidates a.py b.py train.params.network.mlp.units=[512,256,128]
  # what candidates of a task find in state_dict, what they may define, and what fitness measures
  python eval_shapers.py --task Ant --describe
  # go on with a run that was stopped or killed
  python eval_shapers.py --resume runs/Anymal_20260101-120000

exit codes: 0 ranked; 1 every candidate failed; 2 bad input, nothing written; 130 stopped by Ctrl-C, resumable.
"""


ONE_VALUE = ("--output_dir", "--resume", "--task", "--device", "--candidate_idx", "--reward_idx")


class _Parser(argparse.ArgumentParser):
    """Say near matches for unknown flags, and exit with code 2 through UserError."""

    def error(self, message: str):
        words = message.split(": ", 1)[-1].split() if message.startswith("unrecognized arguments") else []
        flags = [flag for action in self._actions for flag in action.option_strings]
        hints = "".join(near_matches(word.split("=")[0], flags) for word in words if word.startswith("-"))
        raise UserError(f"{message}{hints}; see --help")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="eval-shapers",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="override a key of cfg/; unknown keys are errors"
    )

    what = parser.add_argument_group("what to evaluate")
    what.add_argument("--task", help="the robot task, e.g. Anymal or Cartpole")
    what.add_argument(
        "--describe", action="store_true", help="print the task's state, functions and fitness, and do nothing else"
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
        metavar="0,2,5",
        help="only the candidates at these positions, in sorted order",
    )
    what.add_argument(
        "--baseline", choices=("human", "unshaped"), help="what fills in for absent functions (default: human)"
    )
    what.add_argument("--no_baselines", action="store_true", help="do not evaluate the baselines beside the candidates")

    effort = parser.add_argument_group("how much")
    size = effort.add_mutually_exclusive_group()
    size.add_argument(
        "--num_envs_per_candidate", type=int, metavar="N", help="environments per candidate and seed (default: 256)"
    )
    size.add_argument("--num_envs", type=int, metavar="TOTAL", help="environments in all, shared out evenly")
    effort.add_argument("--learning_iterations", type=int, metavar="N", help="PPO iterations (default: 500)")
    effort.add_argument("--seeds", type=int, metavar="K", help="replicas of each candidate (default: 1)")
    effort.add_argument("--seed", type=int, help="the first seed (default: 0)")

    where = parser.add_argument_group("where")
    where.add_argument("--sim", choices=("auto", "mujoco_cpu", "mujoco_warp"), help="simulator (default: auto)")
    where.add_argument("--device", metavar="auto|cpu|cuda:N", help="torch device (default: auto)")
    where.add_argument("--gpu_id", type=int, metavar="N", help="short for --device cuda:N")
    where.add_argument(
        "--max_memory",
        metavar="SIZE",
        help="memory of the device to use, e.g. 24GiB; candidates that do not fit at once are trained in waves, one"
        " after the other, with the same results (default: what is free)",
    )
    where.add_argument(
        "--profile",
        action="store_true",
        help="show where the time goes: some early iterations are measured, two are traced; the results are the same",
    )
    where.add_argument("--output_dir", metavar="DIR", help="the run's folder (default: runs/<task>_<time>)")
    where.add_argument("--resume", metavar="DIR", help="go on with the run in DIR; takes no other flag")
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; key=value may stand anywhere, also after a flag that takes several values."""
    values = [False, *(word in ONE_VALUE for word in words)]  # what follows such a flag is its value
    is_override = [
        bool(re.match(r"[+~\w][\w.@]*=", word)) and not (value or Path(word).exists())
        for word, value in zip(words, values)
    ]
    overrides = [word for word, is_one in zip(words, is_override) if is_one]
    args = build_parser().parse_args([word for word, is_one in zip(words, is_override) if not is_one])
    for word in args.overrides:
        raise UserError(f"'{word}' is neither a flag nor key=value; see --help")
    args.overrides = overrides
    return args


def config_overrides(args: argparse.Namespace) -> List[str]:
    """The flags as overrides of cfg/config.yaml, followed by the user's own key=value."""
    if args.gpu_id is not None and args.device not in (None, "auto"):
        raise UserError("--gpu_id and --device both choose the device: give one of them")
    values: Dict[str, object] = {
        "shaper_types": None if args.shaper_types is None else "[" + ",".join(_shaper_types(args.shaper_types)) + "]",
        "baseline": args.baseline,
        "baselines": "false" if args.no_baselines else None,
        "num_envs_per_candidate": args.num_envs_per_candidate,
        "learning_iterations": args.learning_iterations,
        "seeds": args.seeds,
        "seed": args.seed,
        "max_memory": None if args.max_memory is None else "'" + args.max_memory.replace("'", "\\'") + "'",
        "profile": "true" if args.profile else None,
        "sim": args.sim,
        "device": args.device if args.gpu_id is None else f"cuda:{args.gpu_id}",
    }
    return [f"{key}={value}" for key, value in values.items() if value is not None] + args.overrides


def _shaper_types(names: Sequence[str]) -> List[str]:
    kinds = [ALIASES.get(name, name) for name in names]
    for name, kind in zip(names, kinds):
        if kind not in SHAPER_TYPES:
            hint = near_matches(name, [*SHAPER_TYPES, *ALIASES])
            raise UserError(f"unknown shaper type '{name}'{hint}; there are {', '.join(SHAPER_TYPES)}")
    return kinds


def _describe(task: str) -> int:
    from envcoder_bench.report.describe import describe

    with user_input():
        print(describe(task, shutil.get_terminal_size((110, 24)).columns))
    return 0


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args = parse(words)
        from envcoder_bench import evaluate  # torch and the simulators load here, so that --help is instant

        gc.freeze()  # what was imported stays: the collector need not look at it again
        if args.resume:
            if len(words) > (1 if words[0].startswith("--resume=") else 2):
                raise UserError("--resume takes no other flag: the run's config.yaml says how it goes on")
            return evaluate.resume(Path(args.resume))
        if not args.task:
            raise UserError("which task? Give --task NAME, e.g. --task Cartpole; see --help")
        if args.describe:
            return _describe(args.task)
        return evaluate.start(
            task=args.task,
            overrides=config_overrides(args),
            candidates=None if args.candidates is None else [Path(p) for p in args.candidates],
            candidate_idx=args.candidate_idx,
            num_envs=args.num_envs,
            output_dir=None if args.output_dir is None else Path(args.output_dir),
        )
    except UserError as error:
        print(f"eval-shapers: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("eval-shapers: stopped at once; a run that has begun goes on with --resume", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
