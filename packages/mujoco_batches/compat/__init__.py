"""Private parts of other libraries that this package uses or replaces: one file for each part.

A file's docstring says which part it is, why, and which issue of the library would make the file unnecessary. Importing
a file replaces nothing: what needs a part asks for it when it runs. The file then compares the part with what it
expects. If they differ, the library stays as it is, with one warning.
"""

import functools
import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)


@functools.cache
def warn_once(part: str, difference: str, consequence: str) -> None:
    """Warn, once in a process, that a library's part is not as expected, and what follows from it."""
    log.warning("%s is not as expected (%s): %s", part, difference, consequence)


def difference(owner: Any, functions: Mapping[str, tuple[str, ...]]) -> str:
    """Compare a module or class with the functions that it should have.

    Args:
        owner: the module or class; None if it cannot be imported.
        functions: the first parameters of each function, by name.

    Returns:
        How they differ; empty if they do not.
    """
    if owner is None:
        return "it cannot be imported"
    for name, expected in functions.items():
        function = getattr(owner, name, None)
        if function is None:
            return f"{owner.__name__}.{name} is missing"
        function = getattr(function, "func", function)  # the Python function of a Warp function
        parameters = tuple(inspect.signature(function).parameters)
        if parameters[: len(expected)] != expected:
            return f"{owner.__name__}.{name} has the parameters {', '.join(parameters)}"
    return ""


@contextmanager
def replaced(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Set attributes of a module or class within the block; those that it has not are deleted afterwards."""
    missing = object()
    before = {name: vars(owner).get(name, missing) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            if value is not missing:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)
