"""Evaluate trained policies on terrains: all pairs and episodes in one simulation."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envcoder_bench.cli.command_line import Parser, add_key, as_words, command, count, refuse_others
from envcoder_bench.cli.json_output import put, show
from envcoder_bench.core import SIMULATORS
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.files import refuse_taken, stamped_folder
from envcoder_bench.core.shell import display_path, resume_command
from envcoder_bench.grid.settings import GridSettings
from envcoder_bench.run.hooks import StopRequest

COMMAND = "eval-policies"
WITH_RESUME = ("--device", "--devices", "--sim", "--video")
EPILOG = """\
examples:
  # two policies of Spot on the four built-in terrains, 100 episodes of 600 s for each pair: 800 robots at once
  COMMAND --robot spot --policies rough=policy.pt flat=flat.onnx --terrains friction grass boulder stairs
  # a policy of a run, and a terrain of your own
  COMMAND --robot anymal_c --policies mine=runs/Anymal_x/candidates/a/policy.pth --terrains stairs my_arena.yaml
  # all candidates of a run
  COMMAND --robot spot --policies runs/SpotTerrain_20260101-120000 --terrains boulder stairs --episodes 20
  # a policy of Isaac Lab, whose joints are in another order
  COMMAND --robot spot --policies theirs=policy.pt --layouts theirs=flat_isaac --terrains friction
  # a short trial
  COMMAND --robot spot --policies rough=policy.pt --terrains stairs --episodes 4 --seconds 10
  # other figures of the protocol, which are in cfg/eval_policies.yaml
  COMMAND --robot spot --policies rough=policy.pt --terrains friction commands.vx=0.5 arenas.friction.use=static
  # Unitree's G1, whose policies bring gains, action scales and observations
  COMMAND --robot g1 --policies mine=exported/policy.onnx --terrains friction commands.vx=0.5
  # two GPUs; four processes on the CPU
  COMMAND --robot spot --policies rough=policy.pt --terrains stairs --devices 0,1
  COMMAND --robot spot --policies rough=policy.pt --terrains stairs --devices cpu:4
  # resume after Ctrl-C or a kill
  COMMAND --resume grids/spot_20260101-120000

exit codes: 0 evaluated; 2 bad input, or a file that cannot be read or written; 130 stopped by Ctrl-C (128 + its number
for another signal), resumable.
"""


def build_parser() -> Parser:
    """Return the parser of the command."""
    parser = Parser(COMMAND, __doc__ or "", EPILOG)
    parser.add_overrides(keys=GridSettings.model_fields)
    what = parser.add_argument_group("grid")
    what.add_argument("--robot", metavar="NAME", help="spot, anymal_c, g1, or another one with robots.NAME.model=FILE")
    what.add_argument(
        "--policies",
        nargs="+",
        metavar="NAME=FILE|RUN",
        help="TorchScript, ONNX, a policy.pth of a run folder, or a checkpoint of rsl_rl; or a run folder, for all its"
        " candidates",
    )
    what.add_argument(
        "--layouts",
        nargs="+",
        default=[],
        metavar="NAME=LAYOUT",
        help="what policies observe: flat, rough, flat_isaac, rough_isaac, or of your own in cfg (default: the first"
        " one with the policy's width)",
    )
    what.add_argument(
        "--terrains",
        nargs="+",
        metavar="NAME|FILE",
        help="friction, grass, boulder, stairs, or YAML files (docs/eval_policies.md)",
    )
    add_key(what, "episodes", model=GridSettings, type=int, metavar="N")
    add_key(what, "seconds", model=GridSettings, type=float, metavar="S")
    add_key(what, "seed", model=GridSettings, type=int)

    where = parser.add_argument_group("devices and files")
    where.add_argument("--sim", choices=("auto", *SIMULATORS), default="auto", help="simulator")
    where.add_argument("--device", metavar="auto|cpu|cuda:N", default="auto", help="torch device (default: auto)")
    where.add_argument(
        "--devices", metavar="all|0,1|cpu:N", help="several devices at a time, a process each, which share the episodes"
    )
    where.add_argument(
        "--video", type=count, metavar="N", default=0, help="videos of the first N episodes of each pair"
    )
    where.add_argument("--output_dir", metavar="DIR", help="the grid's folder (default: grids/<robot>_<time>)")
    where.add_argument("--resume", metavar="DIR", help="resume the grid in DIR")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    return command(COMMAND, run, sys.argv[1:] if argv is None else argv)


def run(words: list[str]) -> int:
    """Run the command without its handling of errors; return the exit code."""
    args = build_parser().parse(words)
    if args.resume:
        refuse_others(args, words, "--resume", WITH_RESUME, "the grid's")
    else:
        for flag in ("robot", "policies", "terrains"):
            if not getattr(args, flag):
                raise UserError(f"no {flag}: give --{flag}; see --help")
        if args.output_dir is not None:
            with user_input():
                refuse_taken(Path(args.output_dir), kind="grid")  # before the imports, which take seconds
    return _evaluate(args)


def _evaluate(args: argparse.Namespace) -> int:
    from envcoder_bench.grid.inputs import check_inputs, read_inputs  # torch loads here, so that --help is instant
    from envcoder_bench.grid.report import write_report
    from envcoder_bench.grid.run import GridProgress, begin_grid, run_grid
    from envcoder_bench.serve.documents import Policies

    workers = _workers(args)
    if args.resume:
        folder = Path(args.resume)
        inputs = read_inputs(folder)
    else:
        flags = {"episodes": args.episodes, "seconds": args.seconds, "seed": args.seed}
        overrides = [*as_words(flags), *args.overrides]
        inputs = check_inputs(args.robot, args.policies, args.terrains, overrides, args.layouts)
        folder = Path(args.output_dir) if args.output_dir else stamped_folder("grids", args.robot)
        begin_grid(inputs, folder)
        print(f"folder: {display_path(folder)}", file=sys.stderr)
    progress = GridProgress(len(inputs.specs))
    stop = StopRequest((signal.SIGINT, signal.SIGTERM))
    try:
        with stop:
            result = run_grid(inputs, folder, workers, progress, lambda: stop.by is not None)
    except KeyboardInterrupt:  # a second one
        raise KeyboardInterrupt("stopped at once; resume from the last checkpoint with --resume") from None
    finally:
        progress.close()
    if not result.complete:
        print(f"stopped; resume with: {resume_command(folder, COMMAND)}", file=sys.stderr)
        put(lambda: Policies(folder=folder, complete=False))
        return 128 + int(stop.by or signal.SIGINT)
    page = write_report(inputs, folder, result.rows, args.video, result.seconds)
    _show_ranking(folder, result.rows, page)
    return 0


def _show_ranking(folder: Path, rows: list[dict[str, Any]], page: Path) -> None:
    from envcoder_bench.grid.report import render_summary
    from envcoder_bench.grid.tables import rank_policies, summarize
    from envcoder_bench.serve.documents import Policies

    show(
        lambda: Policies(folder=folder, complete=True, ranking=rank_policies(rows), pairs=summarize(rows), page=page),
        lambda: f"{render_summary(rows)}\n{display_path(page)}\n",
    )


def _workers(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Return simulator and device of each worker. Raises UserError if a device does not exist."""
    from envcoder_bench.run.workers.devices import parse_devices
    from envcoder_bench.sim import pick_simulator

    with user_input():
        if args.devices is None:
            return [pick_simulator(args.sim, args.device)]
        if args.device != "auto":
            raise UserError("--device chooses one device, and --devices several: give one of them")
        devices = parse_devices(args.devices)
        if devices.kind == "cpu":
            return [pick_simulator(args.sim, "cpu")] * (devices.count or 1)
        return [pick_simulator(args.sim, f"cuda:{number}") for number in devices.gpus]
