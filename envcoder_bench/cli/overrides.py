"""Separate ``key=value`` overrides from flags, files and values on a command line."""

import argparse
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

_OVERRIDE = re.compile(r"[+~\w][\w.@]*=")


def split_overrides(
    parser: argparse.ArgumentParser, words: Sequence[str], keys: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Split a command line into the words for ``parser`` and the overrides, which may be anywhere on the line.

    A word ``key=value`` is an override, except:

    - the word after a flag that takes one text is the flag's value;
    - after a flag that takes several texts, the names of existing files and folders are values, and ``./a=b.py`` is;
    - after a flag that takes several ``NAME=VALUE``, the first word is a value, and so are the next ones, until a word
      overrides a key of the config.

    Args:
        keys: the keys of the config at its top level.

    Returns:
        The words for the parser, and the overrides.
    """
    actions = {flag: action for action in _actions(parser) for flag in action.option_strings}
    rest: list[str] = []
    overrides: list[str] = []
    flag: argparse.Action | None = None  # the last flag: the next words may be its values
    is_first = False  # whether the next word would be the first value of ``flag``
    for word in words:
        name, _, value = word.partition("=")
        if word in actions:
            flag, is_first = actions[word], True
        elif name in actions and _takes_pairs(actions[name]):  # --flag=NAME=VALUE
            flag, is_first, word = actions[name], False, value
            rest.append(name)
        elif flag is not None and _takes_pairs(flag) and (is_first or name.split(".")[0] not in keys):
            is_first = False
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


def _takes_pairs(flag: argparse.Action) -> bool:
    return flag.nargs == "+" and str(flag.metavar).startswith("NAME=")


def _takes_many(flag: argparse.Action) -> bool:
    return flag.nargs in ("+", "*") and _is_text(flag) and not _takes_pairs(flag)
