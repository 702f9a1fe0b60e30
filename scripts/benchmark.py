"""Measure EnvCoderBench on this machine, with different, realistic ANYmal candidates.

    python scripts/benchmark.py scaling --candidates 4 16 250        training against the bare physics of the same run
    python scripts/benchmark.py startup --candidates 250             from the command to the first iteration
    python scripts/benchmark.py run --candidates 250                 a whole run, page included

Every measurement prints a table; with --out FILE it also appends its records, a JSON object per line, as they come.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

SIZE = {  # flags of all measurements of the speed: default, meaning
    "--candidates": (250, "candidates"),
    "--envs": (256, "environments per candidate"),
}
TIMED = {"--iterations": (7, "iterations, of which the median counts"), "--warmup": (3, "iterations before")}
# a measurement: its module, what it measures, and its flags
MEASUREMENTS: dict[str, tuple[str, str, dict[str, tuple[Any, str]]]] = {
    "scaling": (
        "bench.scaling",
        "training, bare physics, memory and startup for numbers of candidates",
        {
            "--candidates": ([1, 4, 16], "numbers of candidates, each in its own process"),
            "--envs": SIZE["--envs"],
            "--task": ("Anymal", "another task trains its shipped candidates, each with several seeds"),
            **TIMED,
        },
    ),
    "startup": ("bench.startup", "a run from the command to its first iteration", SIZE),
    "run": ("bench.startup", "a whole run, page included", {**SIZE, "--iterations": (300, "iterations")}),
}


def main() -> None:
    from bench.tables import COLUMNS

    from envcoder_bench.core.errors import exit_on_user_error

    with exit_on_user_error("benchmark"):
        args = parse(build_parser(__doc__ or "", MEASUREMENTS), sys.argv[1:])
        measure(args, MEASUREMENTS, COLUMNS)


def build_parser(about: str, measurements: dict[str, Any]) -> argparse.ArgumentParser:
    """Return a parser with a subcommand for each measurement; a default that is a list takes several values."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, what, flags) in measurements.items():
        command = commands.add_parser(name, help=what, description=f"Measure {what}.")
        for flag, (default, text) in flags.items():
            several = isinstance(default, list)
            default_text = " ".join(map(str, default)) if several else default
            more: dict[str, Any] = {"nargs": "+"} if several else {}
            kind = type(default[0] if several else default)
            command.add_argument(flag, type=kind, default=default, help=f"{text} (default: {default_text})", **more)
        command.add_argument("--out", type=Path, metavar="FILE", help="append the records to this file")
        command.add_argument("--sim", default="auto", help="auto, mujoco_cpu or mujoco_warp (default: auto)")
        command.add_argument("--device", default="auto", help="auto, cpu or cuda:N (default: auto)")
        command.add_argument("overrides", nargs="*", metavar="key=value", help="override a key of cfg/")
    return parser


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse; key=value may stand anywhere, also after a flag that takes several values."""
    from envcoder_bench.cli.overrides import split_overrides

    rest, overrides = split_overrides(parser, words)
    args = parser.parse_args(rest)
    for word in getattr(args, "overrides", []):
        parser.error(f"'{word}' is neither a flag nor key=value")
    args.overrides = overrides
    return args


def measure(args: argparse.Namespace, measurements: dict[str, Any], columns: dict[str, Any]) -> None:
    """Run a measurement; append its records, and show them by the ``columns`` of their kinds."""
    from bench import records, tables

    module = import_module(measurements[args.command][0])
    new_records = []
    for record in getattr(module, args.command)(args):
        records.append(args.out, record)
        new_records.append(record)
    if not new_records:
        sys.exit("nothing was measured")
    print(f"{new_records[0]['machine']}; {new_records[0]['date']}; {new_records[0]['command']}")
    for kind in dict.fromkeys(record["kind"] for record in new_records):
        print(
            "\n" + "\n".join(tables.table(columns[kind], [record for record in new_records if record["kind"] == kind]))
        )


if __name__ == "__main__":
    main()
