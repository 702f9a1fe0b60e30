"""Print a script that completes the commands' verbs, flags and files in a shell."""

import argparse
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from envcoder_bench.cli.command_line import PlainParser
from envcoder_bench.cli.verbs import VERBS
from envcoder_bench.core.errors import UserError
from envcoder_bench.tasks.registry import task_names

COMMANDS = {"eval-shapers": "flags", "auto-shape": "auto_shape", "eval-policies": "eval_policies"}
SHELLS = ("bash", "zsh", "tcsh")
_FILES, _FOLDERS = ("file", "path", "model"), ("dir", "run", "folder")
EPILOG = """\
examples:
  # in bash, by a line of ~/.bashrc: eval "$(envcoder-bench completion bash)"
  COMMAND bash
  # in zsh, by a line of ~/.zshrc after compinit: eval "$(envcoder-bench completion zsh)"
  COMMAND zsh

exit codes: 0 done; 2 bad input, or a missing package.
"""


def build_parser() -> PlainParser:
    parser = PlainParser("envcoder-bench completion", __doc__ or "", EPILOG)
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    return parser


def main(words: list[str]) -> int:
    """Run the verb; return the exit code."""
    shell = build_parser().parse_args(words).shell
    try:
        shtab: Any = import_module("shtab")
    except ImportError as error:
        raise UserError("completion needs the package shtab: pip install shtab") from error
    for parser in _parsers({**dict.fromkeys(_FILES, shtab.FILE), **dict.fromkeys(_FOLDERS, shtab.DIRECTORY)}):
        print(shtab.complete(parser, shell))
    return 0


def _parsers(kinds: Mapping[str, Any]) -> list[argparse.ArgumentParser]:
    """Return a parser for each command; ``kinds`` is what completes a value, by the words for it in the help."""
    parsers: list[argparse.ArgumentParser] = []
    for name, module in COMMANDS.items():
        parser = import_module(f"envcoder_bench.cli.{module}").build_parser()
        parser.prog = name
        parsers.append(parser)
    verbs = argparse.ArgumentParser("envcoder-bench")
    subparsers = verbs.add_subparsers()
    for verb, meaning in VERBS.items():
        parser = import_module(f"envcoder_bench.cli.verbs.{verb.replace('-', '_')}").build_parser()
        parsers.append(subparsers.add_parser(verb, help=meaning, parents=[parser], add_help=False))
    for parser in parsers:
        for action in parser._actions:
            if action.dest == "task" and action.option_strings:
                action.choices = task_names()
            words = str(action.metavar or "").lower().replace("=", "|").split("|")
            kind = next((kinds[word] for word in kinds if word in words), None)
            if kind is not None and not action.choices:
                action.complete = kind  # pyright: ignore[reportAttributeAccessIssue]
    return [*parsers[: len(COMMANDS)], verbs]
