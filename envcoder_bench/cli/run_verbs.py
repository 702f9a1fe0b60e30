"""The verbs of envcoder-bench that read finished runs, and use their policies.

torch is imported only where a verb needs it, so that --help is instant.
"""

import argparse
import sys
from pathlib import Path

from envcoder_bench.cli.command_line import Parser, count, verb_parser
from envcoder_bench.cli.json_output import put, show
from envcoder_bench.core import SIMULATORS
from envcoder_bench.core.errors import UserError, user_input
from envcoder_bench.core.folders import folder_kind, has_package
from envcoder_bench.core.shell import display_path


def _file(flag: str, value: str | None, suffix: str) -> Path | None:
    """Return the file that a flag names. Raises UserError if it has another suffix, or its folder does not exist."""
    if value is None:
        return None
    if Path(value).suffix != suffix:
        raise UserError(f"{flag} {value}: the file must end with {suffix}")
    if not Path(value).absolute().parent.is_dir():
        raise UserError(f"{flag} {value}: the folder {Path(value).parent} does not exist")
    return Path(value)


# compare


_COMPARE = """\
Compare two candidates of a run, or several runs of a task.

examples:
  # two candidates: which is better, how sure this is, how many seeds would tell, why, and whether one is hacked
  COMMAND runs/Anymal_20260101-120000 000_smooth human
  # two runs: prints the tables, writes runs/compare.html
  COMMAND runs/Anymal_20260101-120000 runs/Anymal_20260102-120000
  # only the tables
  COMMAND runs/ppo runs/mine --output none

Differences are to the first run. They are paired by seed where the runs have seeds in common. The runs must be of one
task, and measure the same fitness.

exit codes: 0 done; 2 bad input, or a file that cannot be read or written.
"""


def compare_parser() -> Parser:
    parser = verb_parser("compare", _COMPARE)
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folders of runs, two or more; or one, and the names of two candidates"
    )
    parser.add_argument(
        "--output", metavar="FILE", help="the page, or none (default: compare.html in the folder of the first run)"
    )
    return parser


def compare_runs(words: list[str]) -> int:
    args = compare_parser().parse_args(words)
    if len(args.runs) == 3 and not any("/" in name or folder_kind(name) for name in args.runs[1:]):
        return _compare_pair(args)
    output = _file("--output", None if args.output == "none" else args.output, ".html")
    from envcoder_bench.cli.console import screen_width  # these import torch, which --help does not need
    from envcoder_bench.core.files import write_atomic
    from envcoder_bench.serve.documents import compared_runs
    from envcoder_bench.tools.compare import compare, comparison_page, render

    comparison = compare(args.runs)
    if args.output is None:
        output = Path(args.runs[0]).resolve().parent / "compare.html"
    show(
        lambda: compared_runs(comparison, output),
        lambda: render(comparison, screen_width(), bold=sys.stdout.isatty()),
        own_codes=True,
    )
    if output is not None:
        write_atomic(output, comparison_page(comparison))
        print(f"\n{display_path(output)}")
    return 0


def _compare_pair(args: argparse.Namespace) -> int:
    if args.output not in (None, "none"):
        raise UserError("--output is the page of several runs; that of a run is report.html in its folder")
    from envcoder_bench.cli.console import screen_width  # these import torch, which --help does not need
    from envcoder_bench.run.folder.policies import open_run
    from envcoder_bench.serve.documents import compared_pair
    from envcoder_bench.tools.pair import pair_facts, render_pair

    folder, first, second = args.runs
    run = open_run(folder)
    pair = run.pairs.named(first, second)
    show(
        lambda: compared_pair(pair, run.folder.path, pair_facts(run, first, second)),
        lambda: render_pair(run, first, second, screen_width()),
        own_codes=True,
    )
    return 0


# export


_EXPORT = """\
Write a trained policy as ONNX or TorchScript, with a description of its inputs and outputs.

examples:
  # the best candidate of a run
  COMMAND runs/Cartpole_20260101-120000
  # the policy of one candidate and seed, as TorchScript
  COMMAND runs/Cartpole_20260101-120000 --candidate human --seed 0 --format torchscript

It executes the code of the candidate and of the run's task, and writes these files into the candidate's folder,
RUN/candidates/NAME (docs/export.md):
  policy.onnx or policy.pt   observations to actions and, where possible, commands of the drives
  policy.json                names, order, units and rates of all that goes in and out
  model.xml                  the robot as the run simulated it, for MuJoCo; with meshes, textures and height fields in
                             the folder assets, if it has any
  deploy.yaml                for the runtime of Unitree's robots, of a task of mjlab

exit codes: 0 done; 2 bad input, a missing package, or a file that cannot be read or written.
"""


def export_parser() -> Parser:
    parser = verb_parser("export", _EXPORT)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument("--candidate", metavar="NAME", help="a candidate or baseline (default: the best candidate)")
    parser.add_argument("--seed", type=int, metavar="K", help="one of the run's seeds (default: the candidate's best)")
    parser.add_argument("--format", default="onnx", metavar="onnx|torchscript", help="format (default: onnx)")
    parser.add_argument("--output", metavar="DIR", help="folder for the files (default: the candidate's folder)")
    return parser


def export(words: list[str]) -> int:
    args = export_parser().parse_args(words)
    if args.format == "onnx" and not has_package("onnx"):
        raise UserError("--format onnx needs the package onnx: pip install 'envcoder-bench[export]'")
    from envcoder_bench.export.write import export_policy  # these import torch, which --help does not need
    from envcoder_bench.serve.documents import Written

    done = export_policy(args.run, args.candidate, args.seed, args.format, args.output)
    files = {name: getattr(done, name) for name in ("policy", "description", "model", "assets", "deploy")}
    put(lambda: Written(files={name: path for name, path in files.items() if path is not None}))
    outputs = "actions and commands of the drives" if done.command else "actions"
    print(f"{display_path(done.policy)}: {outputs}; largest difference to the policy of the run: {done.difference:.1e}")
    print(f"{display_path(done.description)}: what goes in and out")
    if done.model is not None:
        assets = None if done.assets is None else display_path(done.assets)
        also = f"; its meshes, textures and height fields are in {assets}" if assets else ""
        print(f"{display_path(done.model)}: the robot, for MuJoCo{also}")
    if done.deploy is not None:
        print(f"{display_path(done.deploy)}: the policy for Unitree's runtime, if its motors are in this order")
    return 0


# list


_LIST = """\
List the runs below folders, with task, date, best candidate and status.

examples:
  # the runs in runs/, oldest first
  COMMAND
  # the runs of two folders, the runs of a search among them
  COMMAND experiments/ runs/Cartpole_search

status: complete; in progress; stopped (eval-shapers --resume continues it); or damaged, with the reason.
best: of the candidates that are not baselines, with its fitness.

exit codes: 0 done; 2 bad input.
"""


def list_parser() -> Parser:
    parser = verb_parser("list", _LIST)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="folders to search for runs (default: runs)")
    return parser


def list_runs(words: list[str]) -> int:
    args = list_parser().parse_args(words)
    from envcoder_bench.serve.documents import Runs  # these import torch, which --help does not need
    from envcoder_bench.tools.listing import find_runs, render_runs

    with user_input():
        runs = find_runs([Path(folder) for folder in args.folders or ["runs"]])
    show(lambda: Runs(runs=runs), lambda: f"{render_runs(runs)}\n")
    return 0


# play


_PLAY = """\
Replay trained policies side by side: the first episode of the run's evaluations.

examples:
  # the best candidate and both baselines: prints their fitness, writes RUN/videos/play.mp4
  COMMAND runs/Anymal_20260101-120000
  # two candidates, with the episode of another seed
  COMMAND runs/Anymal_20260101-120000 --candidate 000_smooth human --seed 7 --video compare.mp4
  # in MuJoCo's viewer, which needs a display
  COMMAND runs/Anymal_20260101-120000 --candidate 000_smooth --view
  # in MuJoCo Warp: on the GPU, or without one on the CPU, where its kernels take minutes to compile
  COMMAND runs/Anymal_20260101-120000 --sim mujoco_warp

It executes the code of the candidates and of the run's task. All policies start in the same state and meet the same
random numbers. Without a display, videos are rendered with EGL or OSMesa (apt-get install libegl1 libgl1-mesa-dri, or
libosmesa6).

exit codes: 0 done; 2 bad input, no renderer, no viewer, or a file that cannot be read or written.
"""


def play_parser() -> Parser:
    parser = verb_parser("play", _PLAY)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "--candidate",
        nargs="+",
        metavar="NAME",
        help="candidates or baselines (default: the best one and the baselines)",
    )
    parser.add_argument("--seed", type=int, metavar="K", help="seed of the episode (default: that of the run)")
    parser.add_argument(
        "--policy_seed", type=int, metavar="K", help="seed of the training (default: each candidate's median one)"
    )
    parser.add_argument("--video", metavar="FILE", help="the mp4 file (default: RUN/videos/play.mp4)")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of the video (default: the whole episode)")
    parser.add_argument("--size", metavar="WxH", default="640x480", help="of each policy's picture (default: 640x480)")
    parser.add_argument("--view", action="store_true", help="open MuJoCo's viewer instead of writing a video")
    parser.add_argument("--sim", choices=SIMULATORS, default="mujoco_cpu", help="simulator (default: mujoco_cpu)")
    parser.add_argument("--device", metavar="auto|cpu|cuda:N", default="auto", help="of mujoco_warp (default: auto)")
    return parser


def play(words: list[str]) -> int:
    args = play_parser().parse_args(words)
    if args.view and args.video:
        raise UserError("--view and --video: give one of them")
    if args.seconds is not None and not args.seconds > 0:
        raise UserError(f"--seconds {args.seconds:g}: it must be greater than 0")
    size = _size(args.size)
    return _play(args, size, _file("--video", args.video, ".mp4"))


def _size(words: str) -> tuple[int, int]:
    width, _, height = words.partition("x")
    if not (width.isdigit() and height.isdigit() and 64 <= int(width) <= 4096 and 64 <= int(height) <= 4096):
        raise UserError(f"--size {words}: give WIDTHxHEIGHT in pixels, 64 to 4096 each, e.g. 640x480")
    return int(width) // 2 * 2, int(height) // 2 * 2  # H.264 needs even numbers


def _play(args: argparse.Namespace, size: tuple[int, int], output: Path | None) -> int:
    from envcoder_bench.core.words import format_fitness
    from envcoder_bench.run.folder.policies import open_run
    from envcoder_bench.serve.documents import Episodes, Played
    from envcoder_bench.sim import pick_simulator
    from envcoder_bench.video import render, viewer
    from envcoder_bench.video.page import VIDEOS, chosen, player, seed_text
    from envcoder_bench.video.record import model_bytes, record

    # fail before anything is simulated
    reason = viewer.missing() if args.view else render.missing()
    if reason:
        raise UserError(reason if args.view else f"videos cannot be rendered here: {reason}")
    with user_input():
        where = pick_simulator(args.sim, args.device)
    # the players: the best candidate, unless others are named
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
        seed = seed_text(run, episode.name, episode.seed)
        print(f"{episode.name} ({seed}): fitness {format_fitness(recording.episode_fitness(episode))}{ended}")
    played = [
        Played(each.name, each.seed, recording.episode_fitness(each), each.ended, each.steps * recording.dt)
        for each in recording.episodes
    ]
    # a window, or a file
    model = model_bytes(run.spec, recording)
    if not args.view and output is None:
        (run.folder.path / VIDEOS).mkdir(exist_ok=True)
        output = run.folder.path / VIDEOS / "play.mp4"
    put(lambda: Episodes(episodes=played, failed=recording.failed, video=output))
    if output is None:
        viewer.view(recording, model)
        return 0
    look = render.Look(*size, fps=25, seconds=args.seconds, together=True, columns=3, seeds=True)
    try:
        render.render(recording, model, [output], look)
    except render.NoVideo as error:
        raise UserError(f"videos cannot be rendered here: {error}") from error
    print(display_path(output))
    return 0


# report


_REPORT = """\
Write the page of a run, report.html, again.

examples:
  # from the files of the run alone, with the videos that it has
  COMMAND runs/Anymal_20260101-120000
  # with new videos of the best three candidates and of both baselines
  COMMAND runs/Anymal_20260101-120000 --video 3

eval-shapers writes the page at the end of a run. docs/reading_a_run.md describes it. Without --video no code of the
run is executed, so that a page of somebody else's run is safe to write. With it the code of the run's candidates and
of its task is executed, which makes the videos and judges the rewards.

exit codes: 0 done; 2 bad input, or a file that cannot be read or written.
"""


def report_parser() -> Parser:
    parser = verb_parser("report", _REPORT)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "--video",
        type=count,
        metavar="K",
        help="new videos of the best K candidates and of both baselines, for which the run's code is executed; 0: no"
        " videos (default: those that the run has)",
    )
    return parser


def write_report(words: list[str]) -> int:
    args = report_parser().parse_args(words)
    from envcoder_bench.serve.documents import Written  # these import torch, which --help does not need
    from envcoder_bench.video.page import write_page

    if args.video:
        print(f"--video executes the code of the candidates and of the task of {args.run}", file=sys.stderr)
    page = write_page(args.run, args.video, executes=bool(args.video))
    show(lambda: Written(files={"page": page}), lambda: f"{display_path(page)}\n")
    return 0


# stress


_STRESS = """\
Play the final policies of a run under what a robot meets, without training.

examples:
  # all candidates and seeds, 64 disturbed robots of 16 episodes each
  COMMAND runs/Anymal_20260101-120000
  # a quick look at two of them on a CPU, ranked by the worst decile
  COMMAND runs/Anymal_20260101-120000 --candidate 000_smooth human --draws 16 --episodes 2 --rank_by stress

Friction, masses, motors, gains, delays, pushes, sensor noise and slopes are drawn once for all candidates
(docs/stress.md), in MuJoCo, or on CUDA in MuJoCo Warp. It writes stress.csv and stress.json into the run's folder, and
the page again. What is there is not measured again: a killed command goes on where it was. It executes the code of the
candidates and of the run's task.

exit codes: 0 done; 2 bad input, or a file that cannot be read or written.
"""


def stress_parser() -> Parser:
    parser = verb_parser("stress", _STRESS)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument("--candidate", nargs="+", metavar="NAME", help="candidates or baselines (default: all)")
    parser.add_argument("--draws", type=count, metavar="N", help="only the first N draws (default: 64)")
    parser.add_argument("--episodes", type=count, metavar="N", help="of each draw (default: 16)")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of an episode (default: the task's)")
    parser.add_argument("--device", default="auto", metavar="DEVICE", help="auto, cpu or cuda:N (default: %(default)s)")
    parser.add_argument("--physics", action="store_true", help="also play draw 0 in other physics: docs/stress.md")
    parser.add_argument("--rank_by", choices=("fitness", "stress"), default="fitness", help="order of the table")
    return parser


def stress(words: list[str]) -> int:
    args = stress_parser().parse_args(words)
    from envcoder_bench.cli.console import screen_width  # these import torch, which --help does not need
    from envcoder_bench.report.stress import render_stress
    from envcoder_bench.serve.documents import stressed
    from envcoder_bench.stress.measure import Asked, stress_run
    from envcoder_bench.video.page import write_page

    asked = Asked(args.draws, args.episodes, args.seconds, args.candidate or (), args.device, args.physics)
    done = stress_run(args.run, asked, lambda line: print(line, file=sys.stderr))
    order, by_stress = [row.candidate for row in done.run.ranked], args.rank_by == "stress"
    page = write_page(done.run.folder.path, None, executes=False) if done.run.folder.complete else None
    show(
        lambda: stressed(done.run.folder.path, done.stress, order, done.failed, by_stress, page),
        lambda: render_stress(done.stress, order, done.failed, by_stress, screen_width()),
    )
    if page is not None:
        print(f"\n{display_path(page)}")
    return 0


# verify


_VERIFY = """\
Train a candidate of a run again, elsewhere and with fresh seeds, and say whether the run's result holds.

examples:
  # the best candidate, with ten fresh seeds, against the installed package's human baseline
  COMMAND runs/Anymal_20260101-120000
  # another candidate of a run with a fitness of your own, of which you have a copy
  COMMAND runs/Anymal_20260101-120000 --candidate 000_smooth --seeds 5 --fitness my/speed.py

It is for runs that somebody else made, an agent with a shell for example. The candidate's text is held against the hash
of the run's beginning, baselines are those of the installed package, whose files are held against its record, and the
training has a folder, a cache and an environment of its own. It executes the code of the candidate and of the task.

exit codes: 0 equal, or cannot tell; 1 different, or a file was changed; 2 bad input, or the training fails.
"""


def verify_parser() -> Parser:
    parser = verb_parser("verify", _VERIFY)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument("--candidate", metavar="NAME", help="a candidate (default: the best one)")
    parser.add_argument("--seeds", type=count, metavar="N", default=10, help="fresh seeds (default: %(default)s)")
    parser.add_argument("--fitness", metavar="FILE", help="your own copy of the run's --fitness file")
    parser.add_argument("--output_dir", metavar="DIR", help="the new run (default: runs/verify_<task>_<time>)")
    return parser


def verify_run(words: list[str]) -> int:
    args = verify_parser().parse_args(words)
    if args.seeds < 2:
        raise UserError("--seeds must be at least 2: one seed does not say how much seeds differ")
    from envcoder_bench.core.words import number  # these import torch, which --help does not need
    from envcoder_bench.results.pairs import sentence
    from envcoder_bench.serve.verify import DIFFERENT, verify

    fitness, output = (None if x is None else Path(x) for x in (args.fitness, args.output_dir))
    done, versus_human = verify(Path(args.run), args.candidate, args.seeds, fitness, output)

    def text() -> str:
        low, high = (number(x, 3, "+") for x in done.interval)
        gap = f"difference {number(done.difference, 3, '+')} [{low}, {high}]"
        both = f"fitness {number(done.fresh)} with fresh seeds, {number(done.recorded)} in the run"
        lines = [
            *(f"- {finding}" for finding in done.findings),
            f"{done.candidate}: {done.verdict}: {both}; {gap}",
            sentence(versus_human),
            display_path(done.folder),
        ]
        return "\n".join(lines) + "\n"

    show(lambda: done, text)
    return 1 if done.findings or done.verdict == DIFFERENT else 0
