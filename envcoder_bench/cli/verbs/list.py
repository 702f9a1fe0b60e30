"""List the runs below folders, with task, date, best candidate and status."""

from pathlib import Path

from envcoder_bench.cli.command_line import PlainParser
from envcoder_bench.core.errors import user_input

EPILOG = """\
examples:
  # the runs in runs/, oldest first
  COMMAND
  # the runs of two folders, the runs of a search among them
  COMMAND experiments/ runs/Cartpole_search

status: complete; in progress; stopped (eval-shapers --resume continues it); or damaged, with the reason.
best: of the candidates that are not baselines, with its fitness.

exit codes: 0 done; 2 bad input.
"""


def build_parser() -> PlainParser:
    parser = PlainParser("envcoder-bench list", __doc__ or "", EPILOG)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="folders to search for runs (default: runs)")
    return parser


def main(words: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = build_parser().parse_args(words)
    from envcoder_bench.tools.listing import find_runs, render_runs  # it imports torch, which --help does not need

    with user_input():
        found = find_runs([Path(folder) for folder in args.folders or ["runs"]])
    print(render_runs(found))
    return 0
