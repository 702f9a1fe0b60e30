"""The verbs score-model and leaderboard of the command envcoder-bench."""

import argparse
import gc
import re
from pathlib import Path

from envcoder_bench.cli.command_line import Parser, count, verb_parser
from envcoder_bench.cli.json_output import show
from envcoder_bench.core.errors import Stopped, UserError, user_input
from envcoder_bench.core.files import stamped_folder
from envcoder_bench.core.shell import display_path

_SCORE_MODEL = """\
Measure how well a model shapes environments: a score with an interval, from searches on several tasks.

examples:
  # a model's rewards for all tasks, with five rounds of feedback (key in OPENAI_API_KEY), for fifty dollars at most
  COMMAND --llm gpt-4.1 --budget search --max_cost 50
  # on robots and goals that nobody has seen, drawn now
  COMMAND --llm claude-sonnet-4-5 --tasks unseen
  # the references: mutation without a model, with and without selection, and the human baseline itself
  COMMAND --llm evolve
  COMMAND --llm random
  COMMAND --llm human
  # rewards that others have published, fetched now: replay:eureka and replay:rf-agent
  COMMAND --llm replay:eureka --tasks Ant
  # an agent with the tools of envcoder-bench mcp, an hour for each search
  COMMAND --llm NAME --budget agent --agent ./agent.sh
  # continue a score that was stopped or killed; no request and no training is repeated
  COMMAND --resume scores/gpt-4.1_20260101-120000

docs/score_model.md has the protocol. Any key=value changes it, and the score says so.

exit codes: 0 done; 2 bad input; 130 stopped, resumable.
"""
_FLAGS = ("llm", "track", "budget", "agent", "tasks", "runs", "base_url", "max_cost", "unseen_seed")
_FLAGS += ("held_out_seed", "output_dir")


def score_model_parser() -> Parser:
    parser = verb_parser("score-model", _SCORE_MODEL)
    parser.add_argument(
        "--llm", metavar="MODEL", help="as of auto-shape; or human, unshaped or replay:eureka, without a search"
    )
    parser.add_argument("--base_url", metavar="URL", help="address of another server with the same protocol")
    parser.add_argument(
        "--track",
        choices=("reward", "all"),
        help="functions that the model writes (default: reward, and what else is absent when a policy is judged)",
    )
    parser.add_argument(
        "--budget",
        choices=("one-shot", "search", "agent"),
        help="1 or 5 rounds of 16, or an hour of an agent (default: one-shot)",
    )
    parser.add_argument("--agent", metavar="COMMAND", help="starts the agent, in a folder with TASK.md and mcp.json")
    parser.add_argument(
        "--tasks", nargs="+", metavar="TASK", help="tasks, or sets: smoke, standard, mjlab, unseen (default: standard)"
    )
    parser.add_argument("--runs", type=count, metavar="N", help="searches of each task (default: 5)")
    parser.add_argument(
        "--unseen_seed", type=count, metavar="N", help="seed of the unseen tasks (default: drawn before their searches)"
    )
    parser.add_argument(
        "--held_out_seed",
        type=count,
        metavar="N",
        help="first held-out seed, to repeat a score (default: drawn when the last search has ended)",
    )
    parser.add_argument("--max_cost", type=float, metavar="USD", help="US dollars for all requests together")
    parser.add_argument("--output_dir", metavar="DIR", help="a new folder (default: scores/<model>_<time>)")
    parser.add_argument(
        "--resume", metavar="DIR", help="continue the score in DIR; takes a higher --max_cost, and no other flags"
    )
    parser.add_overrides("change a key of cfg/ in all searches")
    return parser


def score_model(words: list[str]) -> int:
    args = score_model_parser().parse(words)
    overrides = args.overrides
    used_flags = [name for name in _FLAGS if getattr(args, name) is not None and name != "max_cost"]
    if args.resume and (used_flags or overrides):
        others = ", ".join([*(f"--{name}" for name in used_flags), *overrides])
        raise UserError(f"--resume takes no other flags but a higher --max_cost: leave out {others}")
    if not args.resume and not args.llm:
        raise UserError("no model: give --llm MODEL, e.g. --llm gpt-4.1 or --llm evolve; see --help")
    try:
        return _score(args, overrides)
    except Stopped as stop:
        print(f"\n{stop}", flush=True)
        return 130


def _score(args: argparse.Namespace, overrides: list[str]) -> int:
    """Run the score and show it; return the exit code."""
    # torch and the simulators load here, so that --help is instant
    from envcoder_bench.cli.console import Console, screen_width
    from envcoder_bench.core.files import write_atomic
    from envcoder_bench.report.page.shell import PAGE
    from envcoder_bench.score.document import score_document
    from envcoder_bench.score.folder import ScoreFolder
    from envcoder_bench.score.leaderboard import score_json
    from envcoder_bench.score.page import score_page, score_text
    from envcoder_bench.score.run import at_work, begin, raise_cost, run_score
    from envcoder_bench.search.screen import View

    gc.freeze()  # imported objects are permanent: exclude them from garbage collection
    console = Console(names_folder=False)
    if args.resume:
        folder, config = ScoreFolder.open(Path(args.resume).resolve())
        if args.max_cost is not None:
            config = raise_cost(folder, config, args.max_cost)
    else:
        with user_input():
            path = (
                Path(args.output_dir)
                if args.output_dir
                else stamped_folder("scores", re.sub(r"[^\w.-]+", "_", args.llm))
            )
        folder, config = begin(
            path.resolve(),
            model=args.llm,
            track=args.track or "reward",
            budget=args.budget or "one-shot",
            tasks=tuple(args.tasks or ("standard",)),
            runs=args.runs,
            base_url=args.base_url,
            max_cost=args.max_cost,
            held_out=args.held_out_seed or 0,
            unseen=args.unseen_seed or 0,
            overrides=tuple(overrides),
            agent=args.agent or "",
        )
    print(f"folder: {display_path(folder.path)} (after a stop: {folder.command})", flush=True)
    page = folder.path / PAGE
    with at_work(folder):
        outcomes = run_score(folder, config, View(console, console.stop), lambda text: print(text, flush=True))
        if outcomes is None:
            print(f"stopped; resume with: {folder.command}", flush=True)
            return 130
        score = score_document(config, outcomes)
        write_atomic(folder.score, score_json(score))
        write_atomic(page, score_page(score))
    show(
        lambda: score,
        lambda: f"\n{score_text(score, screen_width())}\n{display_path(folder.score)}\n{display_path(page)}\n",
    )
    return 0


_LEADERBOARD = """\
Check scores of models against their folders, and write a static site of them.

examples:
  # add a score; DIR/index.html lists all that were added
  COMMAND add scores/gpt-4.1_20260101-120000 --site DIR

A score is added if its folder gives the same when it is computed again, and its winners' texts are those that trained
and that the replies in its transcripts have.

exit codes: 0 done; 2 bad input, or a score that does not agree with its folder, with the differences.
"""


def leaderboard_parser() -> Parser:
    parser = verb_parser("leaderboard", _LEADERBOARD)
    parser.add_argument("action", choices=("add",), help="what to do")
    parser.add_argument("folder", metavar="FOLDER", help="the folder of a score")
    parser.add_argument("--site", metavar="DIR", default="leaderboard", help="the site (default: %(default)s)")
    return parser


def leaderboard(words: list[str]) -> int:
    args = leaderboard_parser().parse_args(words)
    from envcoder_bench.score.leaderboard import add  # it imports torch, which --help does not need
    from envcoder_bench.serve.documents import Written

    page = add(Path(args.folder), Path(args.site))
    show(lambda: Written(files={"page": page}), lambda: f"{display_path(page)}\n")
    return 0
