"""Replay trained policies side by side: the first episode of the run's evaluations."""

import argparse
import sys
from pathlib import Path

from envcoder_bench.cli.command_line import PlainParser
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.shell import shown

EPILOG = """\
examples:
  # the best candidate and both baselines: prints their fitness, writes RUN/videos/play.mp4
  COMMAND runs/Anymal_20260101-120000
  # two candidates, with the episode of another seed
  COMMAND runs/Anymal_20260101-120000 --candidate 000_smooth human --seed 7 --video compare.mp4
  # in MuJoCo's viewer; without a display, in a browser
  COMMAND runs/Anymal_20260101-120000 --candidate 000_smooth --view
  # in MuJoCo Warp: on the GPU, or without one on the CPU, where its kernels take minutes to compile
  COMMAND runs/Anymal_20260101-120000 --sim mujoco_warp

All policies start in the same state and meet the same random numbers. Without a display, videos are rendered with EGL
or OSMesa (apt-get install libegl1 libgl1-mesa-dri, or libosmesa6).

exit codes: 0 done; 2 bad input, no renderer, no viewer, or a file that cannot be read or written.
"""


def build_parser() -> PlainParser:
    parser = PlainParser("envcoder-bench play", __doc__ or "", EPILOG)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "--candidate",
        nargs="+",
        metavar="NAME",
        help="candidates or baselines (default: the best one and the baselines)",
    )
    parser.add_argument("--seed", type=int, metavar="K", help="seed of the episode (default: that of the run)")
    parser.add_argument(
        "--policy_seed", type=int, metavar="K", help="seed of the training (default: each candidate's best)"
    )
    parser.add_argument("--video", metavar="FILE", help="the mp4 file (default: RUN/videos/play.mp4)")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of the video (default: the whole episode)")
    parser.add_argument("--size", metavar="WxH", default="640x480", help="of each policy's picture (default: 640x480)")
    parser.add_argument(
        "--view",
        action="store_true",
        help="open MuJoCo's viewer instead of writing a video; without a display its web viewer, for browsers on this"
        " machine (MuJoCo 4)",
    )
    parser.add_argument(
        "--sim", choices=("mujoco_cpu", "mujoco_warp"), default="mujoco_cpu", help="simulator (default: mujoco_cpu)"
    )
    parser.add_argument("--device", metavar="auto|cpu|cuda:N", default="auto", help="of mujoco_warp (default: auto)")
    return parser


def main(words: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = build_parser().parse_args(words)
    if args.view and args.video:
        raise UserError("--view and --video: give one of them")
    if args.seconds is not None and not args.seconds > 0:
        raise UserError(f"--seconds {args.seconds:g}: it must be greater than 0")
    size = _size(args.size)
    output = None if args.video is None else Path(args.video)
    if output is not None and output.suffix != ".mp4":
        raise UserError(f"--video {output}: the file must end with .mp4")
    if output is not None and not output.absolute().parent.is_dir():
        raise UserError(f"--video {output}: there is no folder {output.parent}")
    return _play(args, size, output)


def _size(words: str) -> tuple[int, int]:
    width, _, height = words.partition("x")
    if not (width.isdigit() and height.isdigit() and 64 <= int(width) <= 4096 and 64 <= int(height) <= 4096):
        raise UserError(f"--size {words}: give WIDTHxHEIGHT in pixels, 64 to 4096 each, e.g. 640x480")
    return int(width) // 2 * 2, int(height) // 2 * 2  # H.264 needs even numbers


def _play(args: argparse.Namespace, size: tuple[int, int], output: Path | None) -> int:
    from envcoder_bench.report.words import alone
    from envcoder_bench.run.folder.policies import open_run
    from envcoder_bench.sim import pick_simulator
    from envcoder_bench.video import render, viewer
    from envcoder_bench.video.page import VIDEOS, chosen, player
    from envcoder_bench.video.record import model_bytes, record

    reason = viewer.missing() if args.view else render.missing()
    if reason:
        raise UserError(reason if args.view else f"videos cannot be rendered here: {reason}")
    with user_input():
        where = pick_simulator(args.sim, args.device)
    run = open_run(args.run)
    names = list(dict.fromkeys(args.candidate or chosen(run.ranked, 1)))
    if not names:
        raise UserError(f"{run.folder.path}: no candidate has a fitness yet")
    players = [player(run, name, args.policy_seed) for name in names]
    recording = record(run.spec, players, args.seed, where=where)
    for name, error in recording.failed.items():
        print(f"{name} cannot be played: {error}", file=sys.stderr)
    for episode in recording.episodes:
        ended = f", {episode.ended} after {episode.steps * recording.dt:.1f} s" if episode.ended else ""
        print(f"{episode.name} (seed {episode.seed}): fitness {alone(recording.episode_fitness(episode))}{ended}")
    model = model_bytes(run.spec, recording)
    if args.view:
        viewer.view(recording, model)
        return 0
    if output is None:
        (run.folder.path / VIDEOS).mkdir(exist_ok=True)
        output = run.folder.path / VIDEOS / "play.mp4"
    look = render.Look(*size, fps=25, seconds=args.seconds, together=True, columns=3)
    try:
        render.render(recording, model, [output], look)
    except render.NoVideo as error:
        raise UserError(f"videos cannot be rendered here: {error}") from error
    print(shown(output))
    return 0
