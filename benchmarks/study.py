"""The study: what shaping is worth, and how far a ranking can be trusted. Each part is one command, and resumes.

    python scripts/study.py components --tasks Anymal            the human shaping without each component
    python scripts/study.py lengths --tasks Ant                  both baselines until they stop improving
    python scripts/study.py ranks --tasks Anymal                 cheap rankings of generated candidates, and a reference
    python scripts/study.py evolve --tasks Ant                   searches with equal budgets
    python scripts/study.py devices --tasks Anymal               the same groups on this device, alone and among others
    python scripts/study.py report                               records to the tables and pictures of docs/results.md

Records are JSON lines in --out (docs/study.jsonl), one for each evaluation of a complete training; what is recorded is
not measured again. While a training goes on, its evaluations are in FILE.partial. Runs are in --work: a training that
was stopped by Ctrl-C, SIGTERM or --limit resumes.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Sequence

DOCS = Path(__file__).resolve().parent.parent / "docs"
PARTS = {  # subcommand: its module in studies/
    "components": "components",
    "lengths": "lengths",
    "ranks": "ranks",
    "evolve": "evolution",
    "devices": "devices",
}
STOPPED = 130


def main(words: Sequence[str] | None = None) -> int:
    args = parse(sys.argv[1:] if words is None else words)
    if args.command == "report":
        from studies.report import report

        return _checked(lambda: print(*report(args.records, args.page, args.images), sep="\n"))
    from envcoder_bench.core.errors import user_input
    from envcoder_bench.tasks.registry import get_spec
    from envcoder_bench.video import VIDEO_VARIABLE

    os.environ.setdefault(VIDEO_VARIABLE, "0")
    from studies.training import Study, stopping

    stopped = False

    def run() -> None:
        nonlocal stopped
        with user_input():
            for task in args.tasks or ():
                get_spec(task)
        study = Study(args)
        with stopping(study):
            getattr(import_module(f"studies.{PARTS[args.command]}"), args.command)(study)
        stopped = study.stop.by is not None

    code = _checked(run)
    if stopped:
        print("stopped; the same command resumes", file=sys.stderr)
        return STOPPED
    return code


def _checked(run: Callable[[], None]) -> int:
    """Run; return 0, or 2 with a message for bad input or a file that cannot be read."""
    from envcoder_bench.core.errors import UserError

    try:
        run()
    except (UserError, FileNotFoundError) as error:
        print(f"study: error: {error}", file=sys.stderr)
        return 2
    return 0


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse; key=value may stand anywhere, also after a flag that takes several values."""
    from envcoder_bench.core.overrides import split_overrides

    parser = build_parser()
    rest, overrides = split_overrides(parser, words)
    args = parser.parse_args(rest)
    for word in getattr(args, "overrides", []):
        parser.error(f"'{word}' is neither a flag nor key=value")
    args.overrides = overrides
    return args


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    added = {name: _add(commands, name) for name in PARTS}

    def option(name: str, flag: str, default: Any, text: str, **more: Any) -> None:
        more.setdefault("type", type(default[0] if isinstance(default, list) else default))
        shown = " ".join(map(str, default)) if isinstance(default, list) else default
        added[name].add_argument(flag, default=default, help=f"{text} (default: {shown})", **more)

    sizes = {"components": (2048, 400), "lengths": (4096, 2000), "evolve": (512, 300), "devices": (256, 200)}
    for name, (envs, iterations) in sizes.items():
        option(name, "--envs", envs, "environments of each candidate and seed")
        option(name, "--iterations", iterations, "iterations")
    for name, points in (("components", 5), ("lengths", 16), ("devices", 4)):
        option(name, "--points", points, "evaluations")
        option(name, "--seeds", 5, "seeds")
    option("ranks", "--candidates", 100, "candidates")
    option("ranks", "--envs", [64, 256, 1024], "environments of each cheap setting", nargs="+")
    option("ranks", "--iterations", 300, "iterations; a quarter, a half and three quarters of them are settings, too")
    option("ranks", "--seeds", 3, "seeds of the cheap settings; fewer of them are settings, too")
    option("ranks", "--reference_envs", 4096, "environments of the reference")
    option("ranks", "--reference_seeds", 3, "seeds of the reference")
    option("ranks", "--role", "both", "which trainings", choices=["cheap", "reference", "both"])
    option("evolve", "--searches", 5, "searches of each method")
    option("evolve", "--methods", ["evolve", "random"], "methods", nargs="+", choices=["evolve", "random"])
    option("evolve", "--kinds", ["reward"], "what is searched", nargs="+", choices=["reward", "all"])
    option("evolve", "--rounds", 5, "rounds of a search")
    option("evolve", "--per_round", 16, "candidates of a round")
    option("evolve", "--final_seeds", 5, "held-out seeds, with which the best of a search is trained again")
    option("devices", "--neighbours", [0, 250], "numbers of other groups in the batch", nargs="+")
    for name in PARTS:
        option(name, "--episodes", 64, "episodes of a final evaluation")

    page = commands.add_parser("report", help="write the tables and pictures of the study")
    page.add_argument(
        "--records", type=Path, nargs="+", default=[DOCS / "study.jsonl"], help="default: docs/study.jsonl"
    )
    page.add_argument("--page", type=Path, default=DOCS / "results.md", help="default: %(default)s")
    page.add_argument("--images", type=Path, default=DOCS / "images", help="default: %(default)s")
    return parser


def _add(commands: Any, name: str) -> argparse.ArgumentParser:
    about = (import_module(f"studies.{PARTS[name]}").__doc__ or "").splitlines()[0]
    command = commands.add_parser(name, help=about, description=about)
    command.add_argument("--tasks", nargs="+", metavar="TASK", help="default: those of the study")
    command.add_argument("--out", type=Path, default=DOCS / "study.jsonl", metavar="FILE", help="default: %(default)s")
    command.add_argument("--work", type=Path, default=Path("runs/study"), metavar="DIR", help="default: %(default)s")
    command.add_argument("--limit", type=float, default=0.0, metavar="SECONDS", help="stop after this time")
    command.add_argument("--sim", help="auto, mujoco_cpu or mujoco_warp")
    command.add_argument("--device", help="auto, cpu or cuda:N")
    command.add_argument("--devices", help="several devices: all, GPU numbers such as 0,1, or cpu:N")
    command.add_argument("overrides", nargs="*", metavar="key=value", help="override a key of cfg/")
    return command


if __name__ == "__main__":
    sys.exit(main())
