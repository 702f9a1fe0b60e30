"""What shaping is worth, and how far a ranking can be trusted. Each part is one command, and resumes.

    python benchmarks/study.py components --tasks Anymal   the human shaping without each component
    python benchmarks/study.py ranks --tasks Anymal        cheap rankings of generated candidates, and a reference
    python benchmarks/study.py quarters --tasks Anymal     whether ranks that hold stay in a longer training
    python benchmarks/study.py bank                        whether the tasks of score-model can score

Records are JSON lines in --out (benchmarks/study.jsonl), one for each evaluation of a complete training; what is
recorded is not measured again. Runs are in --work: a training that was stopped by Ctrl-C, SIGTERM or --limit resumes,
and until then its evaluations are in FILE.partial. `python benchmarks/measure.py report` writes the tables.
"""

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.append(str(FOLDER.parent / "scripts"))

PARTS = ("components", "ranks", "quarters", "bank")  # subcommands: modules of studies/ with a function of the same name
STOPPED = 130


def main(words: Sequence[str] | None = None) -> int:
    from benchmark import parse

    from envcoder_bench.core.errors import UserError, user_input
    from envcoder_bench.sources.registry import find_spec
    from envcoder_bench.video import VIDEO_VARIABLE

    args = parse(build_parser(), sys.argv[1:] if words is None else words)
    os.environ.setdefault(VIDEO_VARIABLE, "0")
    from studies.training import Study

    try:
        with user_input():
            for task in args.tasks or ():
                find_spec(task)
        study = Study(args)
        timer = threading.Timer(args.limit, study.stop, ("limit",))
        timer.daemon = True
        if args.limit:
            timer.start()
        with study.stop:
            getattr(import_module(f"studies.{args.command}"), args.command)(study)
    except (UserError, FileNotFoundError) as error:
        print(f"study: error: {error}", file=sys.stderr)
        return 2
    if study.stop.by is not None:
        print("stopped; the same command resumes", file=sys.stderr)
        return STOPPED
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    added = {name: _add(commands, name) for name in PARTS}

    def option(name: str, flag: str, default: Any, text: str, **more: Any) -> None:
        more.setdefault("type", type(default[0] if isinstance(default, list) else default))
        default_text = " ".join(map(str, default)) if isinstance(default, list) else default
        added[name].add_argument(flag, default=default, help=f"{text} (default: {default_text})", **more)

    option("components", "--envs", 2048, "environments of each candidate and seed")
    option("components", "--iterations", 400, "iterations")
    option("components", "--points", 5, "evaluations")
    option("components", "--seeds", 5, "seeds")
    option("ranks", "--candidates", 100, "candidates")
    option("ranks", "--envs", [64, 256, 1024], "environments of each cheap setting", nargs="+")
    option("ranks", "--iterations", 300, "iterations; a quarter, a half and three quarters of them are settings, too")
    option("ranks", "--seeds", 3, "seeds of the cheap settings; fewer of them are settings, too")
    option("ranks", "--reference_envs", 4096, "environments of the reference")
    option("ranks", "--reference_seeds", 3, "seeds of the reference")
    option("ranks", "--role", "both", "which trainings", choices=["cheap", "reference", "both"])
    option("quarters", "--candidates", 12, "candidates")
    option("quarters", "--envs", 16, "environments of each candidate and seed")
    option("quarters", "--iterations", 96, "iterations")
    option("quarters", "--points", 24, "evaluations")
    option("quarters", "--seeds", 2, "seeds")
    option("quarters", "--first_seed", 0, "the first seed")
    option("quarters", "--point_steps", 0, "steps of the episodes of all evaluations but the last; 0: full episodes")
    option(
        "quarters",
        "--vary",
        "generated",
        "generated candidates, or weights of human's terms",
        choices=["generated", "weights"],
    )
    option("bank", "--candidates", 100, "candidates")
    option("bank", "--seeds", 2, "seeds of the bank")
    option("bank", "--best", 4, "candidates of each scored task that train again")
    option("bank", "--fresh_seeds", 5, "seeds with which they do")
    option("bank", "--references", None, "folder in which to write the best that are above human", type=Path)
    for name in PARTS:
        option(name, "--episodes", 64, "episodes of a final evaluation")
    return parser


def _add(commands: Any, name: str) -> argparse.ArgumentParser:
    about = (import_module(f"studies.{name}").__doc__ or "").splitlines()[0]
    command = commands.add_parser(name, help=about, description=about)
    command.add_argument("--tasks", nargs="+", metavar="TASK", help="default: those of the study")
    out = FOLDER / "study.jsonl"
    command.add_argument("--out", type=Path, default=out, metavar="FILE", help="default: %(default)s")
    command.add_argument("--work", type=Path, default=Path("runs/study"), metavar="DIR", help="default: %(default)s")
    command.add_argument("--limit", type=float, default=0.0, metavar="SECONDS", help="stop after this time")
    command.add_argument("--sim", help="auto, mujoco_cpu or mujoco_warp")
    command.add_argument("--device", help="auto, cpu or cuda:N")
    command.add_argument("--devices", help="several devices: all, GPU numbers such as 0,1, or cpu:N")
    command.add_argument("overrides", nargs="*", metavar="key=value", help="override a key of cfg/")
    return command


if __name__ == "__main__":
    sys.exit(main())
