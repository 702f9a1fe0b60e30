"""Measure EnvCoderBench on this machine, with different, realistic ANYmal candidates.

    python scripts/benchmark.py scaling --candidates 4 16 250        training against the bare physics of the same run
    python scripts/benchmark.py processes --processes 1 8            a process per candidate instead
    python scripts/benchmark.py report                               records to the tables and pictures of docs/

Every measurement prints a table; with --out FILE it also appends its records, a JSON object per line, as they come.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Sequence

DOCS = Path(__file__).resolve().parent.parent / "docs"
# subcommand: its module in bench/, and what it measures
MEASUREMENTS = {
    "physics": ("scaling", "env-steps/s of the bare simulation of every task"),
    "scaling": ("scaling", "training, bare physics, memory and startup for numbers of candidates"),
    "processes": ("processes", "several processes at once, each training one candidate"),
    "dispatch": ("dispatch", "microseconds per call of a candidate function, batched and in a Python loop"),
    "learner": ("learner", "acting and learning, all candidates in one batch and one after another"),
    "pairs": ("pairs", "two tasks trained in turns: env-steps/s of processor time"),
    "startup": ("startup", "a run from the command to its first iteration"),
    "run": ("startup", "a whole run, page included"),
    "page": ("page", "from the last iteration to the prompt, of a run with made-up numbers"),
    "devices": ("devices", "a run on several devices, beside one"),
    "certainty": ("certainty", "how often a ranking's statements are right, in simulated runs"),
    "learning": ("learning", "how a task's baselines learn, over env-steps and time, several seeds at once"),
    "crossings": ("terrain", "which types and levels of terrain a policy crosses"),
    "finer": ("finer", "what policies are worth with finer physics steps, or another integrator, than in training"),
}


def main() -> None:
    from envcoder_bench.core.errors import exit_on_user_error

    args = parse(sys.argv[1:])
    with exit_on_user_error("benchmark"):
        if args.command == "report":
            from bench.report import report

            for path in report(args.records, args.pages, args.images):
                print(path)
            return
        measure(args)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse; key=value may stand anywhere, also after a flag that takes several values."""
    from envcoder_bench.core.overrides import split_overrides

    parser = build_parser()
    rest, overrides = split_overrides(parser, words)
    args = parser.parse_args(rest)
    for word in getattr(args, "overrides", []):
        parser.error(f"'{word}' is neither a flag nor key=value")
    if overrides and args.command == "report":
        parser.error(f"report takes no key=value, got {overrides[0]}")
    args.overrides = overrides
    return args


def measure(args: argparse.Namespace) -> None:
    """Run a measurement; append its records and show them."""
    from bench import records, tables

    known = [] if args.out is None else records.read(args.out)
    made = []
    module = import_module(f"bench.{MEASUREMENTS[args.command][0]}")
    for record in getattr(module, args.command)(args):
        records.append(args.out, record)
        made.append(record)
    if not made:
        sys.exit("nothing was measured")
    print(f"{made[0]['machine']}; {made[0]['date']}; {made[0]['command']}")
    for kind in dict.fromkeys(record["kind"] for record in made):
        print("\n" + "\n".join(tables.table(kind, tables.select(kind, made, known))))


def build_parser() -> argparse.ArgumentParser:
    from bench.settings import FORM, parse_physics

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    added = {name: _add(commands, name, about) for name, (_, about) in MEASUREMENTS.items()}

    def option(name: str, flag: str, default: Any, text: str, **more: Any) -> None:
        more.setdefault("type", type(default[0] if isinstance(default, list) else default))
        more.setdefault("help", f"{text} (default: {' '.join(map(str, default)) if more.get('nargs') else default})")
        added[name].add_argument(flag, default=default, **more)

    option("physics", "--envs", [4096], "environments in all", nargs="+")
    added["physics"].add_argument("--tasks", nargs="+", metavar="TASK", help="default: all")
    option("scaling", "--candidates", [1, 4, 16], "numbers of candidates, each in its own process", nargs="+")
    option("scaling", "--task", "Anymal", "another task trains its shipped candidates, each with several seeds")
    option("processes", "--processes", [1, 8], "numbers of processes", nargs="+")
    option("processes", "--seconds", 8.0, "how long all train side by side")
    for name in ("dispatch", "learner", "startup", "run", "page"):
        option(name, "--candidates", 250 if name in ("run", "page") else 16, "candidates")
    option("devices", "--candidates", 1000, "candidates")
    option("devices", "--devices", ["0", "0,1"], "values of eval-shapers --devices", nargs="+")
    option("devices", "--iterations", 60, "iterations")
    for name in ("scaling", "processes", "dispatch", "learner", "startup", "run", "page", "devices"):
        option(name, "--envs", 256, "environments per candidate")
    option("scaling", "--iterations", 7, "iterations, of which the median counts")
    option("learner", "--iterations", 7, "iterations, of which the median counts")
    for name in ("scaling", "processes", "learner"):
        option(name, "--warmup", 3, "iterations before, which compile and capture")
    added["scaling"].add_argument("--dispatch", action="store_true", help="time the candidate functions too")
    option("learner", "--loop_candidates", 0, "", help="candidates in the loop, fewer if it is slow (default: all)")
    for name in ("run", "page"):
        option(name, "--iterations", 300, "iterations")
    option("page", "--seeds", 1, "seeds")
    option("certainty", "--runs", 1000, "simulated runs of each kind")
    added["pairs"].add_argument("--tasks", nargs=2, required=True, metavar="TASK", help="e.g. isaacgymenvs:Ant Ant")
    option("pairs", "--seeds", 16, "groups, each with a seed")
    option("pairs", "--envs", 64, "environments per group")
    option("pairs", "--iterations", 7, "iterations of each, of which the median counts")
    option("pairs", "--warmup", 1, "iterations before")
    added["learning"].add_argument("--task", required=True, help="e.g. Ant")
    option("learning", "--candidates", ["human", "unshaped"], "baselines, or candidate files", nargs="+")
    option("learning", "--seeds", 5, "policies of each")
    option("learning", "--envs", 4096, "environments of each policy")
    option("learning", "--seconds", 60.0, "time of training, of all policies side by side")
    option("learning", "--points", 12, "evaluations")
    option("learning", "--episodes", 64, "episodes of each policy in an evaluation")
    added["learning"].add_argument("--run", type=Path, metavar="FOLDER", help="where the policies are written")
    added["learning"].add_argument("--transfer", action="store_true", help="score the policies in the other simulator")
    added["crossings"].add_argument("--task", default="AnymalTerrain", help="or SpotTerrain (default: %(default)s)")
    text = "a policy.pth of a run, or of learning --run"
    added["crossings"].add_argument("--policy", type=Path, required=True, metavar="FILE", help=text)
    option("crossings", "--candidate", "human", "the baseline, or the file, that it was trained with")
    option("crossings", "--episodes", 1000, "robots, spread evenly over types and levels")
    option("crossings", "--speed", 0.8, "commanded velocity forward, m/s")
    option("crossings", "--seconds", 15.0, "within which a tile must be crossed")
    added["finer"].add_argument("--task", required=True, help="e.g. Ant")
    text = "a run's policy.pth, one for each seed"
    added["finer"].add_argument("--policy", type=Path, required=True, nargs="+", metavar="FILE", help=text)
    option("finer", "--candidate", "human", "the baseline that it was trained with", choices=["human", "unshaped"])
    text = "values of task.sim.substeps, with the task's integrator"
    added["finer"].add_argument("--substeps", nargs="+", type=int, metavar="STEPS", help=text)
    option("finer", "--episodes", 32, "episodes")
    own = "(default: the task's own, and implicitfast with 2, 4 and 8 times its steps)"
    for name, default in (("physics", "(default: own)"), ("finer", own), ("learning", "")):
        text = f"settings of the physics: own, or {FORM}, such as discrete:2 {default}"
        added[name].add_argument("--physics", nargs="+", type=parse_physics, metavar="SETTING", help=text)
    added["learning"].add_argument("--finer", action="store_true", help="score the policies with finer physics steps")

    report = commands.add_parser("report", help="write the tables and pictures of docs/ and README.md")
    report.add_argument("--records", type=Path, default=DOCS / "benchmarks.jsonl", help="default: %(default)s")
    pages = [
        *(DOCS / f"{name}.md" for name in ("benchmarks", "results", "isaacgym", "terrain", "scale")),
        DOCS.parent / "README.md",
    ]
    report.add_argument("--pages", type=Path, nargs="+", default=pages, help="default: docs/ and README.md")
    report.add_argument("--images", type=Path, default=DOCS / "images", help="default: %(default)s")
    return parser


def _add(commands: Any, name: str, about: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=about, description=f"Measure {about}.")
    command.add_argument("--out", type=Path, metavar="FILE", help="append the records to this file")
    command.add_argument("--sim", default="auto", help="auto, mujoco_cpu or mujoco_warp (default: auto)")
    command.add_argument("--device", default="auto", help="auto, cpu or cuda:N (default: auto)")
    command.add_argument("overrides", nargs="*", metavar="key=value", help="override a key of cfg/")
    return command


if __name__ == "__main__":
    main()
