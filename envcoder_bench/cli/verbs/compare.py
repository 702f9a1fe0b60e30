"""Compare several runs of a task: one ranking, and differences of candidates that are in several runs."""

import sys
from pathlib import Path

from envcoder_bench.cli.command_line import PlainParser
from envcoder_bench.core.errors import UserError
from envcoder_bench.core.shell import shown

EPILOG = """\
examples:
  # two runs: prints the tables, writes runs/compare.html
  COMMAND runs/Anymal_20260101-120000 runs/Anymal_20260102-120000
  # only the tables
  COMMAND runs/ppo runs/mine --output none

Differences are to the first run. They are paired by seed where the runs have seeds in common. The runs must be of one
task, and measure the same fitness.

exit codes: 0 done; 2 bad input, or a file that cannot be read or written.
"""


def build_parser() -> PlainParser:
    parser = PlainParser("envcoder-bench compare", __doc__ or "", EPILOG)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs, two or more")
    parser.add_argument(
        "--output", metavar="FILE", help="the page, or none (default: compare.html in the folder of the first run)"
    )
    return parser


def main(words: list[str]) -> int:
    """Run the verb; return the exit code."""
    args = build_parser().parse_args(words)
    output = (
        None if args.output == "none" else Path(args.output or Path(args.runs[0]).absolute().parent / "compare.html")
    )
    if output is not None and output.suffix != ".html":
        raise UserError(f"--output {output}: the file must end with .html")
    if output is not None and not output.absolute().parent.is_dir():
        raise UserError(f"--output {output}: there is no folder {output.parent}")
    from envcoder_bench.cli.console import screen_width  # these import torch, which --help does not need
    from envcoder_bench.core.files import write_atomic
    from envcoder_bench.tools.compare import compare, comparison_page, render

    comparison = compare(args.runs)
    print(render(comparison, screen_width(), bold=sys.stdout.isatty()), end="")
    if args.output is None:
        output = Path(args.runs[0]).resolve().parent / "compare.html"
    if output is not None:
        write_atomic(output, comparison_page(comparison))
        print(f"\n{shown(output)}")
    return 0
