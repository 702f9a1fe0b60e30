"""The terms of a task in words, for prompts and ``--describe``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from envcoder_bench.sources.term_tasks import SECTIONS
from envcoder_bench.sources.term_tasks.dialect import Dialect


def sections_in_words(block: Any) -> Iterator[str]:
    """Yield a line for each group of observations, and for each section of a block's config with terms."""
    dialect, (manager, _) = block.dialect, block.observations.managers[0]
    for group, widths in dialect.observation_widths(manager).items():
        columns = ", ".join(f"{name} {width}" for name, width in widths.items())
        yield f"Observation terms of `{group}`, with their columns: {columns}."
    for section in SECTIONS:
        terms = dialect.terms(block.cfg, section)
        if section != "observations" and terms:
            order = ", in the order of `reward_terms`" if section == "rewards" else ""
            lines = "".join(f"\n  - `{name}`{_term(dialect, term)}" for name, term in terms.items())
            yield f"Terms of `{section}`{order}:{lines}"


def command_in_words(name: str, term: Any) -> tuple[str, str]:
    """Return the unit and the meaning of the present command of a term."""
    if hasattr(getattr(term, "ranges", None), "lin_vel_x"):
        return "m/s, m/s, rad/s", f"the command '{name}': forward and leftward velocity and yaw rate, body frame"
    return "", f"the command '{name}'"


def _term(dialect: Dialect, term: Any) -> str:
    """Return the numbers of a term, and what its function says that it does."""
    func, ranges = dialect.get(term, "func"), dialect.get(term, "ranges")
    values = {"weight": dialect.get(term, "weight"), **(dialect.get(term, "params") or {})}
    values.update({} if ranges is None else {"ranges": dialect.values(ranges)})
    numbers = ", ".join(f"{key} {value}" for key, value in _numbers(values).items())
    meaning = "" if func is None else (inspect.getdoc(func) or "").partition("\n")[0].rstrip(".")
    name = "" if func is None else f" {getattr(func, '__name__', type(func).__name__)}"
    text = ", ".join(filter(None, (numbers, name.strip())))
    return f"{text and f': {text}'}{meaning and f' ({meaning})'}"


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers among values, and the tuples and dicts of numbers."""
    numbers: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and (inside := _numbers(value)):
            numbers[key] = inside
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers[key] = value
        elif isinstance(value, (tuple, list)) and value and all(isinstance(x, (int, float)) for x in value):
            numbers[key] = tuple(value)
    return numbers
