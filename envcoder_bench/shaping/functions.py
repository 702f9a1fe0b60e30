"""Candidates that are Python functions, as in notebooks: the text of a file that defines them and what they use."""

import ast
import builtins
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from envcoder_bench.shaping.kinds import REWARD
from envcoder_bench.shaping.loading import GIVEN


def source_of(functions: Sequence[Callable[..., Any]]) -> str:
    """Return the text of a file with the functions, after the imports, constants and functions that they use.

    One function alone may have any name that does not begin with ``compute_``: it is the reward.

    Raises:
        ValueError: the text of a function is unknown, or it uses a value that cannot be written as text.
    """
    names = [getattr(function, "__name__", "") for function in functions]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two functions are called {twice}: rename one")
    lines: dict[str, str] = {}  # imports and constants, by name
    texts: dict[str, str] = {}  # functions by name, each after those that it uses

    def add(function: Any, above: tuple[str, ...]) -> None:
        name, text = getattr(function, "__name__", ""), _text(function)
        values: dict[str, Any] = function.__globals__
        for used in sorted(_global_names(function, text)):
            value = values.get(used)
            is_there = used not in values or (used in GIVEN and value is GIVEN[used])
            if is_there or used in (*above, name, *texts, *lines):
                continue
            if isinstance(value, FunctionType) and value.__globals__ is values and value.__name__ == used:
                add(value, (*above, name))
            else:
                lines[used] = _line(used, value, name)
        texts[name] = text

    # each function after those that it uses
    for function in functions:
        if getattr(function, "__name__", "") not in texts:
            add(function, ())
    head = "".join(f"{line}\n" for line in lines.values())
    is_reward = len(names) == 1 and not names[0].startswith("compute_")
    last = f"{REWARD} = {names[0]}\n" if is_reward else ""
    return "\n\n".join(filter(None, [head, *texts.values(), last]))


def _text(function: Any) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__
    remedy = "give the text of a file instead"
    if not isinstance(function, FunctionType) or name == "<lambda>":
        raise ValueError(f"{name} is not a function that def defines: {remedy}")
    if function.__code__.co_freevars:
        names = ", ".join(function.__code__.co_freevars)
        raise ValueError(f"{name} uses {names} of the function around it: write its value, or make it global")
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise ValueError(f"the source of {name} is not known: {remedy}") from None
    if text[0].isspace():  # dedent stops at a comment or text at the left margin
        text = ast.unparse(ast.parse(f"if True:\n{text}").body[0].body)  # type: ignore[attr-defined]
    return text


def _global_names(function: FunctionType, text: str) -> set[str]:
    """Return the names that a function, its decorators, defaults and annotations look up in its module."""
    definition = ast.parse(text).body[0]
    assert isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef))
    definition.body = []
    defaults = [*definition.args.defaults, *filter(None, definition.args.kw_defaults)]
    for node in (node for default in defaults for node in ast.walk(default)):
        if isinstance(node, ast.Name) and node.id not in {**function.__globals__, **vars(builtins)}:
            raise ValueError(
                f"a default of {function.__name__} uses {node.id} of the function around it: write its value"
            )
    return {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)} | {*_loaded(function.__code__)}


def _loaded(code: CodeType) -> Iterator[str]:
    yield from (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _loaded(inner)


def _line(name: str, value: Any, function: str) -> str:
    """Return the statement that defines a name in a file."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    module, attribute = getattr(value, "__module__", None), getattr(value, "__name__", "")
    if module not in (None, "__main__") and getattr(sys.modules.get(str(module)), attribute, None) is value:
        return f"from {module} import {attribute} as {name}"
    try:
        if ast.literal_eval(repr(value)) == value:
            return f"{name} = {value!r}"
    except (ValueError, SyntaxError, TypeError):
        pass
    raise ValueError(
        f"{function} uses {name}, a {type(value).__name__} that cannot be written into a file: define it in {function}"
    )
