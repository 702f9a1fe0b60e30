"""Candidates that are Python functions, as in notebooks: the text of a file that defines them and what they use."""

import ast
import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any

from envcoder_bench.shaping.loading import GIVEN


def source_of(functions: Sequence[Callable[..., Any]]) -> str:
    """Return a file's text: imports and constants that the functions use, functions of their module, and they.

    Raises:
        ValueError: there is no text of a function, or it uses a value that cannot be written as text.
    """
    lines: dict[str, str] = {}
    texts: dict[str, str] = {}
    waiting: list[Any] = list(functions)
    while waiting:
        function = waiting.pop()
        text = _text(function)
        texts[function.__name__] = text
        values: dict[str, Any] = function.__globals__
        for name in sorted(_global_names(function, text) & values.keys() - GIVEN.keys() - texts.keys() - lines.keys()):
            value = values[name]
            if isinstance(value, FunctionType) and value.__globals__ is values and value.__name__ == name:
                waiting.append(value)
            else:
                lines[name] = _line(name, value, function.__name__)
    head = "".join(f"{line}\n" for line in lines.values())
    return "\n\n".join(filter(None, [head, *reversed(texts.values())]))


def _text(function: Any) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__
    remedy = "give the text of a file instead"
    if not isinstance(function, FunctionType) or name == "<lambda>":
        raise ValueError(f"{name} is not a function that def defines: {remedy}")
    if function.__code__.co_freevars:
        names = ", ".join(function.__code__.co_freevars)
        raise ValueError(f"{name} uses {names} of the function around it: make it a parameter with a default or global")
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise ValueError(f"there is no source of {name}: {remedy}") from None


def _global_names(function: FunctionType, text: str) -> set[str]:
    """Return the names that a function, its decorators, defaults and annotations look up in its module."""
    definition = ast.parse(text).body[0]
    assert isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef))
    definition.body = []
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
