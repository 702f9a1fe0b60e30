"""Separate ``key=value`` overrides from flags, files and values on a command line."""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_OVERRIDE = re.compile(r"[+~\w][\w.@]*=")


def split_overrides(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the words for ``parser`` and the overrides, which may be anywhere on the line.

    After a flag that takes several values, a word with ``=`` is an override unless it is an existing file or folder;
    ``./a=b.py`` is never an override. The word after a flag that takes one text is always its value.

    Returns:
        The words for the parser, and the overrides.
    """
    actions = {flag: action for action in _actions(parser) for flag in action.option_strings}
    rest: list[str] = []
    overrides: list[str] = []
    flag: argparse.Action | None = None  # whose values may follow
    for word in words:
        if word in actions:
            flag = actions[word]
        elif flag is not None and flag.nargs is None and _is_text(flag):
            flag = None
        elif _OVERRIDE.match(word) and not (flag is not None and _takes_many(flag) and Path(word).exists()):
            overrides.append(word)
            continue
        rest.append(word)
    return rest, overrides


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _is_text(flag: argparse.Action) -> bool:
    return flag.type in (None, Path) and flag.choices is None


def _takes_many(flag: argparse.Action) -> bool:
    return flag.nargs in ("+", "*") and _is_text(flag)
