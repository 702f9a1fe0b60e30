"""The command envcoder-bench, also ``python -m envcoder_bench``: look at finished runs and use their policies."""

import sys
from collections.abc import Sequence

from envcoder_bench.cli.command_line import VERSION, command
from envcoder_bench.cli.verbs import VERBS
from envcoder_bench.core.errors import UserError, near_matches
from envcoder_bench.core.shell import invocation

NAME = "envcoder-bench"
HELP = ("-h", "--help")
EPILOG = """\
COMMAND VERB --help describes a verb.
Runs are made by eval-shapers, and searches for better candidates by auto-shape.

exit codes: 0 done; 1 check-task or verify found a violation, or a difference; 2 bad input, or a file that cannot be
read or written; 130 stopped by Ctrl-C.
"""


def overview() -> str:
    """Return the help of the command: its verbs, one on a line."""
    width = max(map(len, VERBS)) + 2
    verbs = "\n".join(f"  {name:<{width}}{verb.meaning}" for name, verb in VERBS.items())
    epilog = EPILOG.replace("COMMAND", invocation(NAME))
    return f"usage: {invocation(NAME)} VERB ...\n\nLook at finished runs and use their policies.\n\n{verbs}\n\n{epilog}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else ""
    name = f"{NAME} {verb}" if verb in VERBS else NAME
    return command(name, _main, words)


def _main(words: list[str]) -> int:
    if not words:
        raise UserError(f"which verb? There are {', '.join(VERBS)}", advice="see --help")
    verb, *rest = words
    if verb == "--version":
        print(VERSION)
        return 0
    if verb in HELP:
        print(overview(), end="")
        return 0
    if verb not in VERBS:
        hint = near_matches(verb, VERBS)
        raise UserError(f"unknown verb '{verb}'{hint}; there are {', '.join(VERBS)}", advice="see --help")
    return VERBS[verb].main(rest)


if __name__ == "__main__":
    sys.exit(main())
