"""Write the page of a run, report.html, with videos of its best policies."""

from envcoder_bench.cli.command_line import PlainParser
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.shell import shown

EPILOG = """\
examples:
  # the page of a run, with videos of the best three candidates and of both baselines
  COMMAND runs/Anymal_20260101-120000
  # without videos, in a second
  COMMAND runs/Anymal_20260101-120000 --video 0

eval-shapers writes the page at the end of a run. docs/reading_a_run.md describes it.

exit codes: 0 done; 2 bad input, or a file that cannot be read or written.
"""


def build_parser() -> PlainParser:
    parser = PlainParser("envcoder-bench report", __doc__ or "", EPILOG)
    parser.add_argument("run", metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "--video", type=int, metavar="K", help="videos of the best K candidates and of both baselines (default: 3)"
    )
    return parser


def main(words: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = build_parser().parse_args(words)
    if args.video is not None and args.video < 0:
        raise UserError(f"--video {args.video}: it must be 0 or more")
    from envcoder_bench.video.page import write_page  # it imports torch, which --help does not need

    print(shown(write_page(args.run, args.video)))
    return 0
