"""Search for shaping: a language model, or evolution, writes candidates and improves them from training results."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcoder_bench.cli.command_line import (
    Parser,
    add_files,
    add_key,
    add_training,
    add_where,
    as_words,
    command,
    flag_words,
    refuse_others,
    settle_task,
)
from envcoder_bench.cli.json_output import is_json, put
from envcoder_bench.core.errors import Stopped, UserError
from envcoder_bench.search.settings import LIMITS, MODEL, SearchSettings
from envcoder_bench.shaping.kinds import SHAPER_TYPES

if TYPE_CHECKING:
    from envcoder_bench.run.result import RunResult

EPILOG = """\
examples:
  # five rounds of eight rewards and observations by GPT-4.1 (key in OPENAI_API_KEY), ranked by forward speed instead of
  # the task's own fitness, which is how well commands are tracked
  python auto_shape.py --task Anymal --task_description "Make anymal run as fast as possible" \\
      --shaper_types compute_reward compute_observation --fitness user_functions/fitness/anymal_speed.py \\
      --llm gpt-4.1
  # ranked by the task's own fitness; spend ten dollars at most (key in ANTHROPIC_API_KEY)
  python auto_shape.py --task Anymal --task_description "..." --llm claude-sonnet-4-5 --max_cost 10
  # a model of your own behind an OpenAI-compatible server (vLLM, Ollama)
  python auto_shape.py --task Cartpole --llm openai:qwen3 --base_url http://localhost:11434/v1
  # without model and network: mutate and recombine the best candidates; and replay a recorded search
  python auto_shape.py --task Cartpole --llm evolve
  python auto_shape.py --task Cartpole --llm replay:searches/Cartpole_20260101-120000
  # resume a search that was stopped or killed; no request and no training is repeated
  python auto_shape.py --resume searches/Cartpole_20260101-120000
  # the same with a higher limit on the cost, also if the search ended at the limit
  python auto_shape.py --resume searches/Cartpole_20260101-120000 --max_cost 20

exit codes: 0 a best candidate, see best.py; 1 no candidate could be trained; 2 bad input; 130 stopped, resumable.
"""


def build_parser() -> Parser:
    parser = Parser("auto-shape", __doc__ or "", EPILOG)
    parser.add_overrides()
    what = parser.add_argument_group("search")
    what.add_argument("--task", help="the task, e.g. Anymal or Cartpole; eval-shapers --task TASK --describe prints it")
    what.add_argument("--task_description", metavar="TEXT", help="the desired behaviour in your words, for the model")
    what.add_argument(
        "--shaper_types",
        nargs="+",
        metavar="TYPE",
        help=f"functions to write: {', '.join(SHAPER_TYPES)} (default: any of them)",
    )
    add_key(what, "fitness", metavar="FILE")
    what.add_argument(
        "--candidates", nargs="+", metavar="PATH", help="candidates to begin with: they train in the first round"
    )
    add_key(what, "baseline", choices=("human", "unshaped"))

    add_files(what)
    _add_model(parser.add_argument_group("model"))

    effort = parser.add_argument_group("effort")
    for key in ("num_iters", "shapers_per_iter", "repair", "final_seeds"):
        add_key(effort, key, model=SearchSettings, type=int, metavar="N")
    add_key(effort, "num_envs_per_candidate", type=int, metavar="N")
    add_training(effort)

    where = parser.add_argument_group("devices and files")
    add_where(where)
    add_key(where, "wandb", action="store_true")
    where.add_argument("--output_dir", metavar="DIR", help="the search's folder (default: searches/<task>_<time>)")
    where.add_argument(
        "--resume",
        metavar="DIR",
        help="resume the search in DIR; takes no other flags but higher --max_tokens, --max_cost or --num_iters, and"
        " another --llm, --base_url, --temperature, --max_output_tokens or --reply_timeout",
    )
    return parser


def _add_model(model: Any) -> None:
    model.add_argument(
        "--llm",
        metavar="MODEL",
        help="gpt-*, o* (key in OPENAI_API_KEY), claude-* (ANTHROPIC_API_KEY), openai:NAME, anthropic:NAME, replay:FILE"
        " (a recorded transcript), evolve or random (no model)",
    )
    model.add_argument("--base_url", metavar="URL", help="address of another server with the same protocol")
    for key, kind, metavar in (
        ("temperature", float, "T"),
        ("max_output_tokens", int, "N"),
        ("reply_timeout", float, "S"),
        ("max_tokens", int, "N"),
        ("max_cost", float, "USD"),
    ):
        add_key(model, key, model=SearchSettings, type=kind, metavar=metavar)
    add_key(model, "show_baseline", model=SearchSettings, choices=("yes", "no"))
    model.add_argument("--prompt_dir", metavar="DIR", help="your own templates instead of those in cfg/prompt")


def overrides(args: argparse.Namespace) -> list[str]:
    """Return the flags as overrides of cfg/auto_shape.yaml and cfg/config.yaml, then the user's key=value overrides."""
    search = {name: getattr(args, name, None) for name in SearchSettings.model_fields}
    if args.prompt_dir is not None:
        folder = args.prompt_dir.replace("${", "\\${")  # a literal ${, not an interpolation
        search["prompt.dir"] = json.dumps(folder, ensure_ascii=False)  # quoted
    return [*as_words(search), *flag_words(args)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    return command("auto-shape", _main, sys.argv[1:] if argv is None else argv)


def _main(words: list[str]) -> int:
    args = build_parser().parse(words)
    if args.resume:
        refuse_others(args, words, "--resume", [f"--{name}" for name in (*LIMITS, *MODEL)], "the search's")
    else:
        settle_task(args)
        if not args.llm:
            raise UserError("no model: give --llm MODEL, e.g. --llm gpt-4.1 or --llm evolve; see --help")
    try:
        return _search(args)
    except Stopped as stop:  # its message says how to resume
        print(f"\n{stop}", flush=True)
        return 130
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped at once; resume a search that has begun with --resume") from None


def _search(args: argparse.Namespace) -> int:
    """Search and show the progress; return the exit code."""
    # torch and the simulators load here, so that --help is instant
    from envcoder_bench.cli.console import Console, exit_code, show_profile, show_ranking
    from envcoder_bench.search import launch, screen
    from envcoder_bench.serve.documents import Search

    final: list[RunResult] = []

    class View(screen.View):
        def say(self, text: str) -> None:
            print(text, flush=True)

        def show(self, result: RunResult) -> None:
            final.append(result)
            if not is_json():
                show_ranking(result)
            show_profile(result)

    gc.freeze()  # imported objects are permanent: exclude them from garbage collection
    console = Console(names_folder=False)
    view = View(console, console.stop)
    if args.resume:
        changed = {name: getattr(args, name) for name in (*LIMITS, *MODEL) if getattr(args, name) is not None}
        result = launch.resume(Path(args.resume), view, changed)
    else:
        result = launch.start(
            task=args.task,
            llm=args.llm,
            task_description=args.task_description,
            overrides=overrides(args),
            base_url=args.base_url,
            candidates=None if args.candidates is None else [Path(p) for p in args.candidates],
            output_dir=None if args.output_dir is None else Path(args.output_dir),
            view=view,
        )
    rows = final[-1].ranked if final else ()
    put(lambda: Search(best=result.best, complete=not result.stopped, command=result.command, final=rows))
    # a round's run that was stopped stops the search
    if result.stopped is not None:
        print(f"stopped {result.stopped.stopped_at}; resume with: {result.command}", file=sys.stderr)
        return exit_code(result.stopped)
    return 0 if result.best else 1
