"""Run a script for Isaac Lab: ``python -m isaaclab_mujoco scripts/rsl_rl/train.py --task NAME --headless``."""

import argparse
import logging
import os
import runpy
import sys
from pathlib import Path

from isaaclab_mujoco import checkout, fakes, install
from isaaclab_mujoco.assets import find
from isaaclab_mujoco.errors import UserError, line_of
from isaaclab_mujoco.stage import app

OURS = "isaaclab_mujoco: "


def parse(words: list[str]) -> argparse.Namespace:
    """Parse what comes before the script's name; the rest is the script's."""
    parser = argparse.ArgumentParser(
        prog="python -m isaaclab_mujoco",
        description="Run a script for Isaac Lab 2.x on MuJoCo. ISAACLAB_PATH has a checkout of isaac-sim/IsaacLab.",
        allow_abbrev=False,
    )
    parser.add_argument(
        *("--asset",),
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="answer a spawned file whose path ends with NAME by this URDF or MJCF; assets.yaml has lines NAME: FILE",
    )
    parser.add_argument(
        "--updates", type=int, metavar="N", help="end scripts that run while the application does, after N"
    )
    parser.add_argument("--asked", action="store_true", help="list at the end which functions of Omniverse did nothing")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def main() -> int:
    """Run the script; return the exit code, 2 for bad input."""
    args = parse(sys.argv[1:])
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        _prepare(args)
        sys.argv = [str(args.script), *args.arguments]
        runpy.run_path(str(args.script), run_name="__main__")
    except Exception as error:
        sys.unraisablehook = lambda _: None  # environments of Isaac Lab that were not finished complain in __del__
        line = line_of(error)
        if line is None:  # the script's own error
            raise
        print(f"{OURS}{line}", file=sys.stderr)
        return 2
    finally:
        if args.asked:
            rows = [f"  {name} ({count})" for name, count in sorted(fakes.asked.items())]
            print("functions of Omniverse that did nothing, with their calls:", *rows, sep="\n", file=sys.stderr)
    return 0


def _prepare(args: argparse.Namespace) -> None:
    """Read the flags, put the script's folders on the path, and install the hooks.

    Raises:
        UserError: bad input.
    """
    if not args.script.is_file():
        raise UserError(f"{args.script} is not a file")
    for pair in args.asset:
        name, equals, file = pair.partition("=")
        if not (name and equals and file):
            raise UserError(f"--asset {pair}: give NAME=FILE")
        find.given[name] = file
    if Path("assets.yaml").is_file():
        find.read_assets_file(Path("assets.yaml"))
    if args.updates is not None:
        app.updates_left[:] = [args.updates]
    script = args.script.resolve()
    sys.path[0] = str(script.parent)  # Python does the same for any script
    project = checkout.project_of(script)
    find.roots.append(project)
    sys.path[1:1] = checkout.project_packages(project)
    install()
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else Hydra prints errors, and exits, before they arrive here


if __name__ == "__main__":
    sys.exit(main())
